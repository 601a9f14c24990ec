-- Ends a wait: removes the owner from the queue. If an attempt or another script acquired the lock for this waiter,
-- releases that hold. If the lock is then free, serves the head of the queue (`queue.lua`).
-- KEYS   1 hash   2 queue   3 deadlines   4 registrations.
-- ARGV   1 owner.
--        2 the hold to release (`common/holds.lua`): '', '-' or an id.
--        3 lease in ms of the remaining holds.
--        4 not used.
--        5 registration of the waiter. If this owner is registered otherwise or not at all, it stays in the queue:
--          another process may wait as this owner.
--        6 wait   7 first lease   8 publish command   9 LONG   10 LEASE   11 GRACE   12 CHANNELS (see `queue.lua`).
-- Reply  n, 0, -1 or -2 as for `release.lua`; nil if the hold did not exist and no head was served.
-- Idempotent. Same state as Redisson's, except that the head is served if the lock is free.

local owner, hold = ARGV[1], ARGV[2]
local reply = nil
load_queue(ARGV[9], ARGV[10], ARGV[11], ARGV[12])

local found = redis.call('hmget', KEYS[1], owner, owner .. ':holds')
-- If the owner has a list, '' means the unlisted hold (`common/holds.lua`).
if hold == '' and found[2] then hold = '-' end
local free = is_free(KEYS)
if found[1] then
  local ids, left = '', 0
  if hold ~= '' then
    load_holds()
    ids, left = holds.remaining(found[2] or '', tonumber(found[1]) or 0, hold)
  end
  if ids and left == 0 then
    redis.call('del', KEYS[1])
    reply, free = 0, true
  elseif ids then
    holds.write(KEYS[1], owner, left, ids)
    holds.rearm(KEYS[1], ARGV[3], left, ids, '', '0')
    reply = left
  end
end

-- In a command of many steps, the owner stays in the list until `take_out`. If the lock is free, the owner is removed
-- now, because the next waiter is served below.
local was_queued = queue.registered(KEYS, owner) == ARGV[5]
if was_queued and remove_waiter(KEYS, owner, tonumber(ARGV[6]), not free) then return reply end

if free then take_out() end
local served = serve_next(KEYS, free, tonumber(ARGV[6]), ARGV[7], ARGV[8])
if served and type(served) ~= 'table' and (reply == 0 or not reply and served > 0) then reply = -served end
return reply
