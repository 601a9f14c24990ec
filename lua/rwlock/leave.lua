-- A writer that waited gives up: readers are not held back for it any more. What follows (`write_release.lua`) takes back
-- what it may have got unseen.
-- KEYS   1 the lock's hash   2 the owner's first cover   3 the writers of ours that wait
-- ARGV   as for the release
-- Idempotent. Done for itself, should what follows fail: a repeat finds the mark gone. O(log writers that wait).

-- Where that is refused, the mark runs out.
if redis.pcall('zrem', KEYS[3], ARGV[1]) == 1 and redis.call('exists', KEYS[3]) == 0
  and redis.call('hget', KEYS[1], 'mode') ~= 'write' then
  redis.pcall(ARGV[7], ARGV[8], '1')
end

