-- Counts the waiting parties of this round, dead ones included. Changes nothing.
-- KEYS   [1] parties.
-- Reply  The number of parties.
-- O(1).

return redis.call('zcard', KEYS[1])
