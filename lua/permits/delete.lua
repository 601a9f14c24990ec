-- Deletes the free count and all leases. Holders detect this at their next renewal.
-- KEYS   [1] free count.   [2] leases.
-- ARGV   [1] last moment in ms of the server's time; 0 = none.
-- Reply  `1` deleted; `0` no key existed.
--        `{-7, at}` too late, nothing was done; at = the server's time in ms.
-- Idempotent. O(held permits).

local now = clock()
if ARGV[1] ~= '0' and now > tonumber(ARGV[1]) then return {-7, now} end
-- A key of another type stops the script here.
read_count(KEYS[1])
redis.call('zcard', KEYS[2])
return redis.call('del', KEYS[1], KEYS[2]) > 0 and 1 or 0
