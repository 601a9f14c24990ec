-- Tells a party whether its round has ended. If not, renews the party's lease.
-- KEYS   [1] state.   [2] parties.
-- ARGV   [1] owner.   [2] its round.   [3] lease in ms.   [4] publish command.   [5] channel.
-- Reply  `0` the round has not ended; `1` all parties have arrived.
--        `2` the round is broken: a party died, or the keys were deleted.
-- Idempotent. O(log n): n = parties.

local state, parties, mine, now = KEYS[1], KEYS[2], tonumber(ARGV[2]), time_of_server()
local found = redis.call('hmget', state, 'round', 'broken', 'first')
local round = tonumber(found[1] or -1)
-- The keys were deleted, and others have arrived since.
if tonumber(found[3] or 0) > mine then return 2 end
if round > mine then
  local was_broken = string.find((found[2] or '') .. ',', ',' .. ARGV[2] .. ',', 1, true)
  return was_broken and 2 or 1
end
if round < mine or not redis.call('zscore', parties, ARGV[1]) then return 2 end
if has_dead(parties, now) then
  finish_round(state, parties, round, true, ARGV[4], ARGV[5])
  return 2
end
-- PEXPIRE first: a server out of memory refuses ZADD, but not after a script's first write.
redis.call('pexpire', state, KEEP)
redis.call('zadd', parties, now + tonumber(ARGV[3]), ARGV[1])
redis.call('pexpire', parties, KEEP)
return 0
