-- Give back one hold of the owner; the last one frees the lock and wakes a waiter of every client.
-- KEYS   1 the lock's hash   2 the lock's channel, where somebody is told
-- ARGV   1 owner
--        2 hold count to be left to the owner; -1 = unknown, count one down
--        3 lease in ms for what is left
--        4 publish command; empty = nobody is told
-- Reply  n         n holds are left
--        -n        free; n clients were told (on this node)
--        {0, text} free, but nobody could be told: the server's reason
--        nil       the lock is free and was not ours
--        text      held by this other owner
-- Idempotent where ARGV 2 is above 0. At 0 a repeat answers nil or another owner: the caller knows that it repeats.
-- Same state and message as Redisson's RLock (protocol 4.3), or its spin lock (4.5), without their latch key.

if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
  return redis.call('hkeys', KEYS[1])[1]
end

local left = tonumber(ARGV[2])
if left < 0 then
  -- HINCRBY is refused where memory is short, which must not be in the way of the last release.
  left = redis.call('hget', KEYS[1], ARGV[1]) == '1' and 0 or redis.call('hincrby', KEYS[1], ARGV[1], -1)
elseif left > 0 then
  redis.call('hset', KEYS[1], ARGV[1], left)
end
if left > 0 then
  redis.call('pexpire', KEYS[1], ARGV[3])
  return left
end

redis.call('del', KEYS[1])
if ARGV[4] == '' then return 0 end
local told = redis.pcall(ARGV[4], KEYS[2], '0')
if type(told) == 'table' and told.err then
  return {0, told.err}
end
return -told
