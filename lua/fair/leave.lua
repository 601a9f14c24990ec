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

local was_queued = queue.registered(KEYS, owner) == ARGV[5]
local defers = false
if was_queued and only_ours(KEYS) then
  -- In a command of many steps, the owner stays in the list until `take_out`. If the lock is free, the owner is removed
  -- now, because the next waiter is served below.
  defers = leavers and not free
  if not defers then
    take_out()
    redis.call('lrem', KEYS[2], -1, owner)
  end
elseif was_queued then
  take_out()
  local all = redis.call('lrange', KEYS[2], 0, -1)
  for i = #all, 1, -1 do
    if all[i] == owner then
      local due = redis.call('zscore', KEYS[3], owner)
      local ahead = i > 1 and tonumber(redis.call('zscore', KEYS[3], all[i - 1]) or nil)
      if queue.is_told(i - 1, all[i - 1], ahead, queue.time()) then ahead = nil end
      redis.call('lrem', KEYS[2], -1, owner)
      -- The waiters of Java right behind the owner now follow the waiter ahead of it, so their deadlines become
      -- earlier.
      if due and ahead then
        queue.nearer(KEYS, i - 1, due - ahead)
      elseif i == 1 then
        queue.nearer(KEYS, 0, tonumber(ARGV[6]), queue.time() + math.max(0, redis.call('pttl', KEYS[1])), due)
      end
    end
  end
end
if was_queued then
  redis.call('zrem', KEYS[3], owner)
  redis.call('hdel', KEYS[4], owner)
end
if defers then
  local left = leavers[KEYS[2]] or {}
  leavers[KEYS[2]] = left
  left[#left + 1] = owner
  return reply
end

if free then take_out() end
if redis.call('exists', KEYS[2]) == 0 then
  redis.call('del', KEYS[3], KEYS[4])
elseif free then
  local served = queue.serve(KEYS, queue.time(), tonumber(ARGV[6]), ARGV[7], ARGV[8])
  if type(served) ~= 'table' and (reply == 0 or not reply and served > 0) then reply = -served end
end
return reply
