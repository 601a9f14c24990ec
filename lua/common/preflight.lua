-- Checks whether this login may do all that locks need: tries each command on a throw-away key and channel.
-- KEYS   [1] the throw-away key.
-- ARGV   [1] publish command.   [2] the throw-away channel.
-- Reply  a list: the server's time in ms (0 if TIME was refused), then the server's reason for each refusal.
-- The key stays only if the server refuses both DEL and PEXPIRE.

local now = redis.pcall('time')
local out = {now.err and 0 or now[1] * 1000 + math.floor(now[2] / 1000), now.err}
local function try(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err then
    out[#out + 1] = reply.err
  end
end

local key = KEYS[1]
try('exists', key)
try('hset', key, 'probe', 1)
try('pexpire', key, 1000)
try('hexists', key, 'probe')
try('hget', key, 'probe')
try('hmget', key, 'probe', 'other')
try('hdel', key, 'other')
try('hkeys', key)
try('hgetall', key)
try('pttl', key)
try('type', key)
try('del', key)
try(ARGV[1], ARGV[2], '2')
return out
