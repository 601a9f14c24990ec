-- Make leases last so long from now for many locks, each only where its owner still holds it. Never creates anything.
-- KEYS   for each lock its hash, then the owner's first covers where they matter
-- ARGV   1 lease in ms: one that is longer now is left alone; negative = set to so many ms even then, where
--          the owner has no other holds than those that are relied on; 0 = for writers: every lease is left alone
--        2 last moment in ms of the server's time; 0 = none
--        and for each lock: owner; the holds that are relied on, as for `common/renew.lua`; write, read, or keep; tag; how
--        many covers it has in KEYS
--        read = every cover of the owner, and the hash; keep = the covers stay, the hash lasts as long as they do
-- Reply  as of `common/renew.lua`
-- Idempotent; a copy makes no lease shorter, and one of a negative lease does nothing. One bad key does not stop the
-- others. As Redisson's renewal, but it cuts nobody short.
-- A lock whose covers cannot all be read is not said to be lost: its entry is the server's reason. O(holds renewed), whoever else
-- reads; where a lease is made shorter, as a release.

-- For one lock, what is to be written: each a key and the lease that it gets; nil = it is not held. Nothing is written before
-- everything was read (`covers.lua`). A lease that stays is written as well: what replicas acknowledge is this connection's last write.
-- `count`: the owner's holds for reading.
local function write(hash, owner, tag, count, exactly)
  if exactly then
    return {{hash, math.max(lease, covered(tag, owner, count, math.huge))}}
  end
  local to = lease_for(redis.call('pttl', hash))
  return to and {{hash, to}} or {}
end

local function read(hash, owner, tag, count, exactly, mode, keep)
  if not mode or count == 0 then return nil end
  local best, todo = 0, {}
  for n = 1, math.min(count, MOST) do
    local key = cover(tag, owner, n)
    local now = redis.call('pttl', key)
    -- A cover that has run out is not brought back.
    if now > 0 then
      if not keep and (exactly or now < lease) then
        todo[#todo + 1] = {key, lease_text}
        now = lease
      elseif not keep then
        todo[#todo + 1] = {key, now}
      end
      best = math.max(best, now)
    end
  end
  if best == 0 then return nil end
  local left, others, dead = redis.call('pttl', hash), nil, nil
  if exactly and mode == 'read' then
    load_readers()
    others, dead = lease_needed(hash, tag, redis.call('hlen', hash), left, {owner = owner, count = count, left = 0})
  end
  todo[#todo + 1] = {hash, (others or left < best) and math.max(best, others or 0) or left}
  return todo, dead
end

local out, key, arg = {}, 1, 3
while arg <= #ARGV do
  local hash, owner, wanted, half, tag = KEYS[key], ARGV[arg], ARGV[arg + 1], ARGV[arg + 2], ARGV[arg + 3]
  key, arg = key + 1 + tonumber(ARGV[arg + 4]), arg + 5
  local field, gone = half == 'write' and owner .. ':write' or owner, nil
  local ok, answer = pcall(function()
    local found, way, list = redis.call('hmget', hash, field, field .. ':holds', owner, 'mode'), 'longer', nil
    if not found[1] then return 0 end
    if exactly or wanted ~= '' or found[2] then
      load_holds()
      local held
      held, gone, way, list = holds.relied(found[1], found[2] or '', wanted, exactly)
      if held == 0 or way == 'leave' then return held end
    end
    local half_of, count = half == 'write' and write or read, tonumber(found[3]) or 0
    local todo, dead = half_of(hash, owner, tag, count, way == 'set', found[4], half == 'keep')
    local no = list and holds.note(hash, field, list)
    if no then error(no) end
    if not todo then return 0 end
    for i = 1, #todo do redis.call('pexpire', todo[i][1], todo[i][2]) end
    if dead then bury(hash, dead) end
    return 1
  end)
  if ok and answer == 1 and gone and #gone > 0 then answer = gone end
  if not ok then
    -- Before Redis 7 an error is a text that begins with the position in the script.
    answer = type(answer) == 'table' and answer.err or tostring(answer)
    answer = string.gsub(answer, '^@?user_script:%s*%d+:%s*%-?', '')
  end
  out[#out + 1] = answer
end
return out
