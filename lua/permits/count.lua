-- Counts the free and the held permits. Changes nothing.
-- KEYS   [1] free count.   [2] leases.
-- Reply  `{free, held}`. free = the free count plus the expired permits. It is negative while more permits are held
--        than there are in total. held = permits whose lease has not ended.
-- O(log n): n = held permits.

local now = clock()
local expired = redis.call('zcount', KEYS[2], 0, now)
return {read_count(KEYS[1]) + expired, redis.call('zcard', KEYS[2]) - expired}
