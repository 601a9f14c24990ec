-- Give up waiting: the owner leaves the queue, and the hold that it waited for is given back if it was counted. When the
-- lock is free then, the head of the queue is served.
-- KEYS   1 hash   2 queue   3 deadlines   4 the waiters of ours
-- ARGV   1 owner
--        2 hold (`common/holds.lua`): '', '-' or an id
--        3 lease in ms for what is left
--        4 not read: there so that the first four are a release's
--        5 what the waiter is registered by: the entry of another process that waits as this owner stays
--        6 own wait in ms   7 first lease in ms of a lock that is passed on   8 publish command
--        9 Redisson's fairLockWaitTimeout in ms   10 the watchdog's lease in ms   11 prefix of the waiters' channels
-- Reply  as that of release.lua, for the hold; nil when it was not there
-- Idempotent. Same state as Redisson's, where the new head gets no message.

local owner, hold = ARGV[1], ARGV[2]
local reply = nil
load_queue(ARGV[9], ARGV[10], ARGV[11])

local found = redis.call('hmget', KEYS[1], owner, owner .. ':holds')
-- Others came to know the owner, and act as it; or its lease was made shorter.
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
  -- Whoever is served next must stand in a list without leavers.
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
      local ahead = i > 1 and redis.call('zscore', KEYS[3], all[i - 1])
      redis.call('lrem', KEYS[2], -1, owner)
      -- Those of Java behind it stand behind the one ahead of it now.
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
  if reply == 0 and type(served) ~= 'table' then reply = -served end
end
return reply
