-- Redisson's fair lock, from the protocol's description (9.2 to 9.6).
-- KEYS 1 hash 2 queue 3 deadlines   ARGV 1 what 2 owner 3 lease 4 wait 5 prefix of the channels
local what, me, lease, wait = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local hash, queue, deadlines = KEYS[1], KEYS[2], KEYS[3]
local t = redis.call('time')
local now = t[1] * 1000 + math.floor(t[2] / 1000)

local function first() return redis.call('lindex', queue, 0) end

local function tell()
  local owner = first()
  if owner then redis.call('publish', ARGV[5] .. ':' .. owner, '0') end
end

if what == 'fail' then
  local behind = false
  for _, owner in ipairs(redis.call('lrange', queue, 0, -1)) do
    if behind then redis.call('zincrby', deadlines, -wait, owner) end
    behind = behind or owner == me
  end
  redis.call('zrem', deadlines, me)
  redis.call('lrem', queue, 0, me)
  return nil
end

local owner = first()
while owner do
  local due = redis.call('zscore', deadlines, owner)
  if not due or tonumber(due) > now then break end
  redis.call('zrem', deadlines, owner)
  redis.call('lpop', queue)
  owner = first()
end

local free = redis.call('exists', hash) == 0
local mine = redis.call('hexists', hash, me) == 1

if what == 'unlock' then
  if free then
    tell()
    return 1
  end
  if not mine then return nil end
  if redis.call('hincrby', hash, me, -1) > 0 then
    redis.call('pexpire', hash, lease)
    return 0
  end
  redis.call('del', hash)
  tell()
  return 1
end

if free and (not owner or owner == me) then
  redis.call('lpop', queue)
  redis.call('zrem', deadlines, me)
  for _, other in ipairs(redis.call('zrange', deadlines, 0, -1)) do
    redis.call('zincrby', deadlines, -wait, other)
  end
  redis.call('hset', hash, me, 1)
  redis.call('pexpire', hash, lease)
  return nil
end
if mine then
  redis.call('hincrby', hash, me, 1)
  redis.call('pexpire', hash, lease)
  return nil
end
if what == 'once' then return 1 end

local left = redis.call('pttl', hash)
if redis.call('zscore', deadlines, me) then return math.max(0, left) end
local last = redis.call('lindex', queue, -1)
local base = last and last ~= me and redis.call('zscore', deadlines, last)
if base then left = tonumber(base) - now end
if redis.call('zadd', deadlines, left + wait + now, me) == 1 then redis.call('rpush', queue, me) end
return left
