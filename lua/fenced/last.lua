-- The number of the last section.
-- KEYS   1 the counter of the lock's sections
-- Reply  the number as text, nil = there was none
-- Reads only.

return redis.call('get', KEYS[1])
