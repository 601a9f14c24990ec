-- Writes the leader's epoch and payload into its lock's hash, and wakes observers. A release or the end of the lease
-- deletes them together with the hash.
-- KEYS   [1] the lock's hash.
-- ARGV   [1] owner: the leader.   [2] epoch: the fencing token.
--        [3] number of this write, from 1; a leader counts its writes.   [4] payload.
--        [5] last moment; ignored, a late copy is harmless.   [6] publish command.   [7] channel of the observers.
-- Reply  1 = written, or this write or a later one has run before; 0 = this owner does not hold the lock.
-- Idempotent: a late copy changes nothing after a later write, or after the end of this leader's hold. O(1). Redisson
-- reads its own fields of the hash only.

local found = redis.call('hmget', KEYS[1], ARGV[1], 'leader:holds')
if not found[1] then return 0 end
local last = string.match(found[2] or '', '^%d+:(%d+):')
if last and tonumber(last) >= tonumber(ARGV[3]) then return 1 end
-- The field's name ends in `:holds`, so scripts about owners skip the field.
redis.call('hset', KEYS[1], 'leader:holds', ARGV[2] .. ':' .. ARGV[3] .. ':' .. ARGV[4])
-- If the server refuses the message, observers find the change at their next query.
redis.pcall(ARGV[6], ARGV[7], '0')
return 1
