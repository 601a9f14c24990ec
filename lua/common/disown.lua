-- Marks a listed hold as one without a guard: `,id` in the owner's list becomes `,+id` (`common/holds.lua`). The hold
-- stays counted. A release of hold '*' takes such a hold first.
-- KEYS   [1] the lock's hash.
-- ARGV   [1] the field of the owner's count.   [2] the hold's id.
-- Reply  1 = done, 0 = the hold does not exist or was marked before.
-- Idempotent.

load_holds()
local count, ids = tonumber(redis.call('hget', KEYS[1], ARGV[1]) or nil), holds.listed(KEYS[1], ARGV[1])
if not count or not holds.find(ids, ARGV[2]) then return 0 end
holds.write(KEYS[1], ARGV[1], count, holds.without(ids, ARGV[2]) .. ',+' .. ARGV[2])
return 1
