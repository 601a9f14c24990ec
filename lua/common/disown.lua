-- A hold without a guard: it stays counted, and is marked in the list, so that whoever gives back any hold of its owner takes
-- this one first.
-- KEYS   1 the lock's hash
-- ARGV   1 field of the owner's count   2 the hold's id
-- Reply  1 done, 0 it was not there
-- Idempotent.

load_holds()
local count, ids = tonumber(redis.call('hget', KEYS[1], ARGV[1]) or nil), holds.listed(KEYS[1], ARGV[1])
if not count or not holds.place(ids, ARGV[2]) then return 0 end
holds.drop(KEYS[1], ARGV[1], count, holds.without(ids, ARGV[2]) .. ',+' .. ARGV[2])
return 1
