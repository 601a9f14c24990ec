-- Counts the parties that have arrived in this round. Changes nothing.
-- KEYS   [1] parties.
-- Reply  The number of parties.
-- O(1).

return redis.call('zcard', KEYS[1])
