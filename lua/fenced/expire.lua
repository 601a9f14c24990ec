-- Sets an expiry on the counter of a lock that nobody holds.
-- KEYS   [1] the lock's hash.   [2] the lock's counter.
-- ARGV   [1] ms until the counter expires.
-- Reply  1 = done, or there is no counter; 0 = the lock is held, nothing was done.
-- Idempotent: a repeat restarts the time. The next acquire by this crate removes the expiry. O(1). Redisson has no such
-- command.

if redis.call('exists', KEYS[1]) == 1 then return 0 end
-- If the login may not use PERSIST, the script fails here: acquires by this login could not remove the expiry.
redis.call('persist', KEYS[2])
redis.call('pexpire', KEYS[2], ARGV[1])
return 1
