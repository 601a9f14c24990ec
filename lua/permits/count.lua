-- Counts the permits. Changes nothing.
-- KEYS   [1] count.   [2] leases.
-- Reply  `{free, held}`: permits that can be taken, expired ones included, and permits whose lease has not ended. free is
--        negative after the total was set below the number of held permits.
-- O(log n) in the number of held permits.

local now = clock()
local expired = redis.call('zcount', KEYS[2], 0, now)
return {read_count(KEYS[1]) + expired, redis.call('zcard', KEYS[2]) - expired}
