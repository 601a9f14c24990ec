-- Give the counter of a lock that nobody holds an end.
-- KEYS   1 the lock's hash   2 the counter of its sections
-- ARGV   1 ms until the counter goes
-- Reply  1   done, or there is no counter
--        0   somebody holds the lock: nothing was done
-- Idempotent: a repeat starts the time anew. An acquire of ours takes the end away again. O(1).
-- Redisson has nothing of the kind.

if redis.call('exists', KEYS[1]) == 1 then return 0 end
-- A login that may not take the end away again must not set one: the acquires of its clients could not keep the counter.
redis.call('persist', KEYS[2])
redis.call('pexpire', KEYS[2], ARGV[1])
return 1
