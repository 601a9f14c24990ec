-- Make leases last so long from now for many locks, each only where its owner still holds it. Never creates anything.
-- KEYS   the locks' hashes
-- ARGV   1 lease in ms: one that is longer now is left alone; negative = set to so many ms even then, where
--          the owner has no other holds than those that are relied on
--        2 last moment in ms of the server's time; 0 = none
--        and for KEYS[i], from 4i - 1 on: owner; the holds that are relied on, as for `common/renew.lua`; write, read, or
--        keep; tag
--        read = every cover of the owner, and the hash; keep = the covers stay, the hash lasts as long as they do
-- Reply  as of `common/renew.lua`
-- Idempotent; a copy makes no lease shorter, and one of a negative lease does nothing. One bad key does not stop the
-- others. As Redisson's renewal (protocol 6), but it cuts nobody short.

local lease = tonumber(ARGV[1])
local exactly = lease < 0
if exactly then lease = -lease end
if ARGV[2] ~= '0' then
  load_holds()
  local late = too_late(ARGV[2])
  if late then return late end
end

local function write(hash, owner, tag, exactly)
  local found = redis.call('hmget', hash, owner .. ':write', owner)
  if not found[1] then return 0 end
  local now = redis.call('pttl', hash)
  if exactly then
    redis.call('pexpire', hash, math.max(lease, covered(tag, owner, tonumber(found[2]) or 0, math.huge)))
  elseif now < lease then
    redis.call('pexpire', hash, lease)
  end
  return 1
end

local function read(hash, owner, tag, exactly, keep)
  local found = redis.call('hmget', hash, 'mode', owner)
  local mode, count = found[1], tonumber(found[2]) or 0
  if not mode or count == 0 then return 0 end
  local best = 0
  for n = 1, math.min(count, MOST) do
    local key = cover(tag, owner, n)
    local now = redis.call('pttl', key)
    -- What has run out is not brought back.
    if now > 0 then
      if not keep and (exactly or now < lease) then
        redis.call('pexpire', key, lease)
        now = lease
      end
      best = math.max(best, now)
    end
  end
  if best == 0 then return 0 end
  if exactly and mode == 'read' then best = longest(hash, tag, math.huge) end
  local now = redis.call('pttl', hash)
  if now < best or exactly and mode == 'read' then redis.call('pexpire', hash, best) end
  return 1
end

local out = {}
for i = 1, #KEYS do
  local owner, holds, half, tag = ARGV[4 * i - 1], ARGV[4 * i], ARGV[4 * i + 1], ARGV[4 * i + 2]
  local field, gone = half == 'write' and owner .. ':write' or owner, nil
  local ok, answer = pcall(function()
    local found, way = redis.call('hmget', KEYS[i], field, field .. ':holds'), 'longer'
    if not found[1] then return 0 end
    if exactly or holds ~= '' or found[2] then
      load_holds()
      local held
      held, gone, way = relied(KEYS[i], field, found[1], found[2] or '', holds, exactly)
      if type(held) == 'table' then error(held) end
      if held == 0 or way == 'leave' then return held end
    end
    return (half == 'write' and write or read)(KEYS[i], owner, tag, way == 'set', half == 'keep')
  end)
  if ok and answer == 1 and gone and #gone > 0 then answer = gone end
  if not ok then
    -- Before Redis 7 an error is a text with the place in front.
    answer = type(answer) == 'table' and answer.err or tostring(answer)
    answer = string.gsub(answer, '^@?user_script:%s*%d+:%s*%-?', '')
  end
  out[i] = answer
end
return out
