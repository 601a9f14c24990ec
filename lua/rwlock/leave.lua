-- A waiting writer gives up: its mark is removed, so it no longer holds back readers. The script that the build puts behind
-- this one (`write_release.lua`) releases what the writer may have acquired without knowing.
-- KEYS   [1] the lock's hash.   [2] the owner's first cover.   [3] the marks of our waiting writers.
-- ARGV   as in `write_release.lua`.
-- Idempotent. The mark stays removed if the release fails: a repeat finds it gone. O(log waiting writers).

-- If ZREM is refused, the mark expires.
if redis.pcall('zrem', KEYS[3], ARGV[1]) == 1 and redis.call('exists', KEYS[3]) == 0
  and redis.call('hget', KEYS[1], 'mode') ~= 'write' then
  redis.pcall(ARGV[7], ARGV[8], '1')
end

