-- Returns the holder's value, and its lease.
-- KEYS   [1] the lock.
-- Reply  `{pttl, value, '1'}`: '1' = the number of holds; pttl -1 = held without an end. `{-2}` = free.
-- Reads only. O(1).

local found = redis.call('get', KEYS[1])
if not found then return {-2} end
return {redis.call('pttl', KEYS[1]), found, '1'}
