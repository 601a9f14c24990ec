-- Who holds the lock, and for how long.
-- KEYS   1 the lock
-- Reply  {pttl, value, '1'}; {-2} = free; pttl -1 = held without end
-- Reads only. O(1).

local found = redis.call('get', KEYS[1])
if not found then return {-2} end
return {redis.call('pttl', KEYS[1]), found, '1'}
