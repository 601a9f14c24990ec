-- Reads a number. Changes nothing.
-- KEYS   [1] the number.
-- Reply  The number as text; nil if there is none.
-- O(1).

return redis.call('get', KEYS[1])
