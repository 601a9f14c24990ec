-- Functions shared by the scripts of barriers. The build puts this file in front of them.
--
-- Terms of these scripts:
-- - State: a hash with the number of the current round (`round`), the number of its first round (`first`), the number of
--   parties (`n`), and a list of the last broken rounds (`broken`): `,round` for each. The first round's number is the
--   server's time in us. So a party of a lost state finds a `first` above its own round.
-- - Parties: a sorted set of the parties that wait in this round. Member = owner. Score = the end of the party's lease
--   in ms of the server's time.
-- - Dead party: its lease has ended.

-- Time to live of unused keys in ms: a day.
local KEEP = 86400000
-- Maximum length of the list of broken rounds in bytes.
local MOST = 2000

-- The server's time in ms.
local function time_of_server()
  local now = redis.call('time')
  return now[1] * 1000 + math.floor(now[2] / 1000)
end

local function text(number)
  return string.format('%.0f', number)
end

-- Ends a round, released or broken, and wakes its parties. `broken`: true if a party is dead.
local function finish_round(state, parties, round, broken, publish, channel)
  local list = broken and (redis.call('hget', state, 'broken') or '') .. ',' .. text(round)
  redis.call('hset', state, 'round', text(round + 1))
  if broken then redis.call('hset', state, 'broken', string.sub(list, -MOST)) end
  redis.call('pexpire', state, KEEP)
  redis.call('del', parties)
  redis.pcall(publish, channel, '0')
end

local function has_dead(parties, now)
  return redis.call('zcount', parties, 0, now) > 0
end
