-- Returns the number of the last critical section (`number.lua` says what the numbers mean).
-- KEYS   [1] the lock's counter.
-- Reply  the number as text; nil = there is no counter.
-- Reads only.

return redis.call('get', KEYS[1])
