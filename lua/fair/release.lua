-- Give back one hold of the owner; the last one frees the lock, and the head of the queue is served.
-- KEYS   1 hash   2 queue   3 deadlines   4 the waiters of ours
-- ARGV   1 owner
--        2 hold (`common/holds.lua`)
--        3 lease in ms for what is left
--        4 the holds that the caller has left, one `,id` each; '' = unknown
--        5 last moment in ms of the server's time, of giving back any hold, or of making the lease shorter; 0 = none
--        6 own wait in ms   7 first lease in ms of a lock that is passed on   8 publish command
--        9 Redisson's fairLockWaitTimeout in ms   10 the watchdog's lease in ms   11 prefix of the waiters' channels
-- Reply  n         n holds are left
--        0, -1     free, and nobody waited; free, and passed on to the head or its client told
--        {0, text} free, but the head could not be told: the server's reason
--        {-8, id}  nothing was done: for hold '*', which one it is to be, by its id. One that is not listed is given back at once
--        {-7, at}  too late, nothing was done; at = the server's time in ms
--        nil       the lock was not ours and is free, or was passed on just now
--        text      held by this other owner
--        {-2, n}   the hold is not there, but n others of this owner are
-- Idempotent: a repeat answers nil, an owner or {-2, n}; the caller knows that it repeats. But for hold '*', until its last
-- moment.
-- Same state as Redisson's fair lock, without its latch key; a head of ours is made the owner.

take_out()
local owner, hold = ARGV[1], ARGV[2]
local found = redis.call('hmget', KEYS[1], owner, owner .. ':holds')
-- Others came to know the owner, and act as it; or its lease was made shorter.
if hold == '' and found[2] then hold = '-' end
if hold ~= '' then load_holds() end

local function pass_on()
  load_queue(ARGV[9], ARGV[10], ARGV[11])
  return queue.serve(KEYS, queue.time(), tonumber(ARGV[6]), ARGV[7], ARGV[8])
end

-- Who is first in the queue, or the server's reason for not telling; false = nobody waits.
local function first()
  return redis.pcall('lindex', KEYS[2], 0)
end

if not found[1] then
  load_holds()
  local holder = holds.somebody(KEYS[1])
  -- Also where a first copy freed it: free it is, whatever the other keys hold.
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
-- Free it is, whatever the other keys hold.
local ran, served = pcall(pass_on)
if not ran then return {0, type(served) == 'table' and served.err or served} end
if type(served) == 'table' then return {0, served.err} end
return -served
