-- Renews the leases of many locks, each only if its owner still holds it. Never creates a key.
-- KEYS   per lock: its hash, then the owner's first covers (`covers.lua`): for a reader 1 to 16; for a writer 1 if
--        ARGV[1] is negative, else none.
-- ARGV   [1] lease in ms, from now; a longer current lease stays. Negative = the lease may also become shorter, if the
--            owner has no holds other than those named here. 0 = leave every lease (writers only).
--        [2] last moment in ms of the server's time; 0 = none.
--        Then per lock: owner; the holds to renew, as for `common/renew.lua`; `write`, `read` or `keep`; tag; number of
--            covers in KEYS.
--        `write` = renew the hash, for a writer. `read` = renew every cover of the owner, and the hash. `keep` = leave
--            the covers; the hash lasts as long as they do.
-- Reply  as for `common/renew.lua`. If a cover cannot be read, the lock's entry is the server's error, not 0.
-- Idempotent. With a negative lease, a late copy changes no lease. An error at one lock does not stop the others.
-- Unlike Redisson's renewal, this shortens no lease of another owner. O(holds renewed), however many others read. If a
-- lease is shortened, the cost of `read_release.lua`.

-- `write` and `read` return what to write for one lock, a list of {key, lease}; nil = not held. They write nothing,
-- because everything is read before the first write (`covers.lua`). A lease that stays is written too (Acknowledgement
-- in `common/holds.lua`). `count`: the owner's read holds.
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
    -- An expired cover is not revived.
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
  local field, gone, asked = half == 'write' and owner .. ':write' or owner, nil, nil
  local ok, answer = pcall(function()
    local found = redis.call('hmget', hash, field, field .. ':holds', owner, 'mode', 'revoke:holds')
    local way, list = 'longer', nil
    if not found[1] then return 0 end
    asked = half == 'write' and found[5]
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
  if ok and answer == 1 then
    if asked then
      gone = gone or {}
      gone[#gone + 1] = 0
    end
    if gone and #gone > 0 then answer = gone end
  end
  if not ok then
    -- Before Redis 7 an error is a text that starts with the position in the script.
    answer = type(answer) == 'table' and answer.err or tostring(answer)
    answer = string.gsub(answer, '^@?user_script:%s*%d+:%s*%-?', '')
  end
  out[#out + 1] = answer
end
return out
