-- Tries commands on a throw-away key, and messages on channels, and reports each refusal.
-- KEYS   [1] the throw-away key.
-- ARGV   [1] the publish command.   [2] number of channels.   [3..] the channels, then the commands.
-- Reply  a list: the command or channel, then the server's reason, for each error.
-- Leaves no key: if DEL and PEXPIRE are both refused, commands that create a key are not tried.

local key, out = KEYS[1], {}
local function refusal(...)
  local reply = redis.pcall(...)
  return type(reply) == 'table' and reply.err
end
local function try(what, ...)
  local reason = refusal(...)
  if reason then
    out[#out + 1] = what
    out[#out + 1] = reason
  end
end

local creates = {
  decrby = true, hset = true, incr = true, incrby = true, rpush = true, set = true, zadd = true, zincrby = true,
}
local words = {
  decrby = {key, 1}, del = {key}, exists = {key}, get = {key}, hdel = {key, 'other'}, hexists = {key, 'probe'},
  hget = {key, 'probe'}, hgetall = {key}, hkeys = {key}, hlen = {key}, hmget = {key, 'probe', 'other'},
  hset = {key, 'probe', 1}, incr = {key}, incrby = {key, 1}, lindex = {key, 0}, llen = {key}, lpop = {key},
  lrange = {key, 0, 0}, lrem = {key, 0, 'other'}, persist = {key}, pexpire = {key, 1000}, pttl = {key},
  rpush = {key, 'probe'}, set = {key, 1, 'px', 1000}, time = {}, type = {key}, zadd = {key, 1, 'probe'},
  zcard = {key}, zcount = {key, 0, 0}, zincrby = {key, 1, 'probe'}, zrange = {key, 0, 0},
  zrangebyscore = {key, 0, 0}, zrem = {key, 'other'}, zscore = {key, 'probe'},
}

local channels = tonumber(ARGV[2])
for i = 3, 2 + channels do
  try(ARGV[i], ARGV[1], ARGV[i], '2')
end
-- The server checks the rights before the type of the key, so the type does not matter.
local cleans = not (refusal('del', key) and refusal('pexpire', key, 1000))
for i = 3 + channels, #ARGV do
  local command = ARGV[i]
  if words[command] and (cleans or not creates[command]) then
    try(command, command, unpack(words[command]))
  end
end
redis.pcall('pexpire', key, 1000)
redis.pcall('del', key)
return out
