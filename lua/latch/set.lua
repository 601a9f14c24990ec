-- Sets the count of an unused latch, or deletes a latch.
-- KEYS   [1] count.
-- ARGV   [1] the count; `delete` = deletes the latch, and wakes all waiters.
--        [2] last moment in ms of the server's time; 0 = none.
--        [3] publish command.   [4] channel.
-- Reply  `1` done; `0` nothing was changed: there is a count already, or none to delete.
--        `{-7, at}` too late, nothing was done; at = the server's time in ms.
-- Idempotent. O(1). Redisson's state and messages (1 = a new count). Difference: Redisson's delete sends 1, so its
-- waiters never return. This script sends 0, which wakes them.

local now = redis.call('time')
now = now[1] * 1000 + math.floor(now[2] / 1000)
if ARGV[2] ~= '0' and now > tonumber(ARGV[2]) then return {-7, now} end
-- Text that is not a number stops the script, because INCRBY fails.
local count = redis.call('get', KEYS[1])
if count and not tonumber(count) then redis.call('incrby', KEYS[1], 0) end
if ARGV[1] == 'delete' then
  if redis.call('del', KEYS[1]) == 0 then return 0 end
  redis.pcall(ARGV[3], ARGV[4], '0')
  return 1
end
if count then return 0 end
redis.call('set', KEYS[1], ARGV[1])
redis.pcall(ARGV[3], ARGV[4], '1')
return 1
