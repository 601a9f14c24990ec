-- Releases one hold of the owner. The last release frees the lock and serves the head of the queue.
-- KEYS   1 hash   2 queue   3 deadlines   4 our waiters
-- ARGV   1 owner
--        2 hold (`common/holds.lua`)
--        3 lease in ms of the remaining holds
--        4 the caller's remaining holds, one `,id` each; '' = unknown
--        5 last moment in ms of the server's time, used for hold '*' and when the lease becomes shorter; 0 = none
--        6 own wait in ms: how long our waiters keep their places without a refresh
--        7 first lease in ms of a lock that is passed on   8 publish command
--        9 Redisson's fairLockWaitTimeout in ms   10 the watchdog's lease in ms   11 grace in ms
--        12 prefix of the waiters' channels
-- Reply  n         n holds are left
--        0         free: nobody waited
--        -1        passed on to the head
--        -2        free or passed on: the head was notified (Java) or granted the lock (ours), and must confirm within
--                  the grace time
--        {0, text} free, but the head could not be notified: the server's error
--        {-8, id}  nothing was done: '*' means the hold with this id, so the release must be repeated with the id. If '*'
--                  means the unlisted hold, it is released at once
--        {-7, at}  too late: nothing was done; at = the server's time in ms
--        nil       nobody held the lock. It is free, or was passed on by this script
--        text      the lock is held by this other owner
--        {-2, n}   the hold does not exist, but the owner has n others
-- Idempotent: a repeat replies nil, an owner or {-2, n}. Exception: until its last moment a copy
-- with hold '*' may release another unlisted hold.
-- Same state as Redisson's fair lock, without its unlock latch. Unlike Redisson, the script makes a head of ours the owner.

take_out()
local owner, hold = ARGV[1], ARGV[2]
local found = redis.call('hmget', KEYS[1], owner, owner .. ':holds')
-- The caller knows one hold only (''), but the owner has a list: others have acquired as this owner since, or a command
-- that shortens the lease was noted there. So the caller's hold is the unlisted one ('-').
if hold == '' and found[2] then hold = '-' end
if hold ~= '' then load_holds() end

local function pass_on()
  load_queue(ARGV[9], ARGV[10], ARGV[11], ARGV[12])
  return queue.serve(KEYS, queue.time(), tonumber(ARGV[6]), ARGV[7], ARGV[8])
end

-- The first in the queue, or the server's error; false = nobody waits.
local function first()
  return redis.pcall('lindex', KEYS[2], 0)
end

if not found[1] then
  load_holds()
  local holder = holds.somebody(KEYS[1])
  -- If nobody holds the lock, its lease has ended, or an earlier copy of this release has freed it. The head may not
  -- have been served. Errors are ignored, because the lock is free even if the queue cannot be served.
  if not holder and first() then pcall(pass_on) end
  return holder
end

if hold ~= '' then
  local ids, left = holds.give_back(found[2] or '', tonumber(found[1]) or 0, hold, ARGV[5])
  if not ids then return left end
  if left > 0 then
    holds.write(KEYS[1], owner, left, ids)
    holds.rearm(KEYS[1], ARGV[3], left, ids, ARGV[4], ARGV[5])
    return left
  end
end

local waits = first()
if waits then is_free(KEYS) end
redis.call('del', KEYS[1])
if not waits then return 0 end
-- The lock is free, even if the queue cannot be served.
local ran, served = pcall(pass_on)
if not ran then return {0, type(served) == 'table' and served.err or served} end
if type(served) == 'table' then return {0, served.err} end
return -served
