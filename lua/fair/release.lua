-- Releases one hold of the owner. The last release frees the lock and serves the head of the queue (`queue.lua`).
-- KEYS   1 hash   2 queue   3 deadlines   4 registrations.
-- ARGV   1 owner.
--        2 the hold to release: '', '-', '*', or ids (`common/holds.lua`).
--        3 lease in ms of the remaining holds.
--        4 the caller's remaining holds, one `,id` each; '' = unknown.
--        5 last moment in ms of the server's time; 0 = none.
--        6 wait   7 first lease   8 publish command   9 LONG   10 LEASE   11 GRACE   12 CHANNELS (see `queue.lua`).
-- Reply  n         n holds are left.
--        0         free: nobody waited.
--        -1        passed on to the head.
--        -2        free, and a head of Java was notified; or passed on, and the head must confirm within GRACE.
--        {0, text} free or passed on, but serving the head failed: the server's error.
--        {-8, id}  nothing was done: the caller must repeat the release with this id instead of '*'.
--        {-7, at}  too late: nothing was done; at = the server's time in ms.
--        nil       nobody held the lock. It is free, or this script has passed it on.
--        text      the lock is held by this other owner.
--        {-2, n}   the hold does not exist, but the owner has n others.
-- Idempotent: a repeat releases nothing, and answers nil, an owner or {-2, n}. Exception: hold '*'
-- (`common/holds.lua`). Same state as Redisson's fair lock, but without its latch key, and the lock is passed on to a
-- head of ours.

take_out()
local owner, hold = ARGV[1], ARGV[2]
local found = redis.call('hmget', KEYS[1], owner, owner .. ':holds')
-- If the owner has a list, '' means the unlisted hold (`common/holds.lua`).
if hold == '' and found[2] then hold = '-' end
if hold ~= '' then load_holds() end

local function pass_on()
  load_queue(ARGV[9], ARGV[10], ARGV[11], ARGV[12])
  return queue.serve(KEYS, queue.time(), tonumber(ARGV[6]), ARGV[7], ARGV[8])
end

-- The first owner in the queue, or the server's error; false = nobody waits.
local function first()
  return redis.pcall('lindex', KEYS[2], 0)
end

if not found[1] then
  load_holds()
  local holder = holds.somebody(KEYS[1])
  -- Without a holder, the lease has ended or this is a repeat, and perhaps no script has served the head. Errors are
  -- ignored, because the lock is free even if the queue cannot be served.
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
