-- First part of a script that ends the wait of a writer: removes the writer's mark (`covers.lua`), so that it no longer
-- holds back readers. If it was the last mark, and nobody holds the lock for writing, all waiters are woken. The build
-- puts `write_release.lua` behind this file. It releases the hold that an unanswered attempt may have acquired, and
-- replies.
-- KEYS   [1] the lock's hash.   [2] the owner's first cover.   [3] the marks of our waiting writers.
-- ARGV   as in `write_release.lua`.
-- Idempotent. The mark stays removed if the release fails. O(log waiting writers).

-- If ZREM is refused, the mark stays until it expires.
if redis.pcall('zrem', KEYS[3], ARGV[1]) == 1 and redis.call('exists', KEYS[3]) == 0
  and redis.call('hget', KEYS[1], 'mode') ~= 'write' then
  redis.pcall(ARGV[7], ARGV[8], '1')
end

