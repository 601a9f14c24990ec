-- Returns the number of the last critical section.
-- KEYS   [1] the lock's counter.
-- Reply  the number as text; nil = there was no section.
-- Reads only.

return redis.call('get', KEYS[1])
