-- Arrives at a barrier. The last arrival ends the round and wakes the other parties.
-- KEYS   [1] state.   [2] token (`common/once.lua`).   [3] parties.
-- ARGV   [1] to [3] as in `common/once.lua`.   [4] owner.   [5] number of parties.   [6] lease in ms.
--        [7] publish command.   [8] channel.
-- Reply  `2 * round`; for the last party `2 * round + 1`.
--        `-1` a party was dead. This arrival has broken the round and joins none: arrive again.
--        `{'again', reply}` this command has run before, with this reply; '' = a later command has used the token.
--        `{-7, at}` too late, nothing was done; at = the server's time in ms.
--        An error if other parties have arrived with another number of parties.
-- O(log n): n = parties.

local before = ran_before()
if before then return before end
local state, parties, now = KEYS[1], KEYS[3], time_of_server()
local found = redis.call('hmget', state, 'round', 'n')
local round, arrived = tonumber(found[1]), redis.call('zcard', parties)
if not round then
  local time = redis.call('time')
  round = time[1] * 1000000 + time[2]
end
if arrived > 0 and has_dead(parties, now) then
  ran('-1')
  finish_round(state, parties, round, true, ARGV[7], ARGV[8])
  return -1
end
if redis.call('zscore', parties, ARGV[4]) then arrived = arrived - 1 end
if arrived > 0 and found[2] ~= ARGV[5] then
  return redis.error_reply('ERR the barrier is for ' .. tostring(found[2]) .. ' parties, not for ' .. ARGV[5])
end
if arrived + 1 >= tonumber(ARGV[5]) then
  ran(text(2 * round + 1))
  if not found[1] then redis.call('hset', state, 'first', text(round)) end
  finish_round(state, parties, round, false, ARGV[7], ARGV[8])
  return 2 * round + 1
end
ran(text(2 * round))
redis.call('hset', state, 'round', text(round), 'n', ARGV[5])
if not found[1] then redis.call('hset', state, 'first', text(round)) end
redis.call('zadd', parties, now + tonumber(ARGV[6]), ARGV[4])
redis.call('pexpire', state, KEEP)
redis.call('pexpire', parties, KEEP)
return 2 * round
