-- Functions shared by the scripts of the read-write lock. The build puts this file in front of them. More terms:
-- `common/holds.lua`. Ours = of this crate; Java = Redisson.
--
-- State. One hash: `mode` is read or write. A reader's field is its owner, the writer's is `<owner>:write`. Each read
-- hold has a key of its own, its *cover*, numbered from 1 per owner. The cover lasts as long as the hold's lease. A
-- reader without a cover is *dead*: it holds nothing, although its field may still be there. The *tag* is the lock's
-- name in braces, or the bare name if it contains a brace. A waiting writer of ours has a *mark* in a sorted set; its
-- score is the server's time in ms until which the writer holds back new readers of ours.
--
-- Cost. There may be thousands of readers, so a script does not normally check all of them. If the hash has few fields
-- (FEW), its lease is exactly the longest cover. If it has more, a script checks readers chosen at random
-- (`lease_needed`). The hash never ends before a live reader's cover, but may outlast all covers.
--
-- Moving slots. While a cluster moves a slot, this server may have only some keys of the slot. If a key of KEYS is
-- missing, the server refuses the script before it starts. A missing key that is not in KEYS stops the script midway,
-- and its earlier writes stay. Therefore:
-- 1. The owner's first cover is in KEYS, so that a server that has only the lock's hash refuses the script. Calls that
--    write nothing (`state.lua`) or use no cover (such as `force.lua`) have only the hash in KEYS.
-- 2. A script reads everything that it needs before its first write.

-- Upper limit of one owner's read holds. A higher count in the hash is forged, and must not keep the server busy.
local MOST = 65536
-- In a hash with at most FEW fields, a script checks all readers.
local FEW = 16
-- SAMPLE: how many random fields `ask_some` checks. SEARCH: how many fields a command may search in all.
local SAMPLE, SEARCH = 16, 256
-- A hash with more than FEW fields is not shortened if it outlasts its readers by this many ms or less.
local SLACK = 5000

-- `search`: what is left of SEARCH. `alive`: for each hash, a reader that this command found alive.
local search, alive = SEARCH, {}
-- In `rwlock/many`: the hashes from which steps removed readers. Their leases are checked after the last step
-- (`many/end.lua`). In other scripts nil.
local deferred

local function cover(tag, owner, n)
  return tag .. ':' .. owner .. ':rwlock_timeout:' .. n
end

-- Returns how many ms the longest cover of a reader lasts; 0 = the reader is dead. A cover of at least `enough` ms ends
-- the search.
local function covered(tag, owner, count, enough)
  local best = 0
  for n = math.min(count, MOST), 1, -1 do
    best = math.max(best, redis.call('pttl', cover(tag, owner, n)))
    if best >= enough then break end
  end
  return best
end

local function refused(reply)
  return type(reply) == 'table' and reply.err and reply
end

-- The error for a hash without a mode. It belongs to another kind of lock, and a write would damage it.
local function foreign()
  return redis.error_reply('WRONGTYPE the key holds a lock of another kind')
end

-- Functions about readers other than the script's owner.
local lease_needed, readers_keep, bury, give_lease, holder, busy_for

-- Creates these functions. A script calls this before it uses one of them. Other paths skip it to save the cost.
local function load_readers()
  if lease_needed then return end

  -- Our uuids have version 8, Java's have version 4.
  local function is_ours(owner)
    return string.byte(owner, 15) == 56
  end

  -- Returns how many ms the longest cover lasts (0 = no reader is alive), and the dead readers of ours that were met.
  -- O(fields). The search starts with the newest reader. A cover of at least `enough` ms ends the search. Callers
  -- usually pass what the hash has left, because a cover of ours never outlives the hash. If there is a reader of Java,
  -- all readers are checked, because Java's watchdog may have shortened the hash. `own`: a reader whose release is
  -- planned but not written yet. `own.left` holds will remain. `own.longer` is the new lease of the last of their covers,
  -- or false.
  local function longest(hash, tag, enough, own)
    local best, dead, flat = 0, {}, redis.call('hgetall', hash)
    local function stays(field)
      return field ~= 'mode' and (not own or own.left > 0 or field ~= own.owner)
    end
    for i = 1, #flat, 2 do
      if stays(flat[i]) and not is_ours(flat[i]) then
        enough = math.huge
        break
      end
    end
    for i = #flat - 1, 1, -2 do
      local field = flat[i]
      if stays(field) then
        local count, now = tonumber(flat[i + 1]) or 0, 0
        if own and field == own.owner then
          count = own.left
          if own.longer then
            now, count = own.longer, count - 1
          end
        end
        if now < enough then now = math.max(now, covered(tag, field, count, enough)) end
        if now > best then
          best, alive[hash] = now, field
        elseif now <= 0 and count > 0 and is_ours(field) and not (own and field == own.owner) then
          dead[#dead + 1] = field
        end
        if best >= enough then break end
      end
    end
    return best, dead
  end

  -- True if the field is that of a reader other than `own`. Callers do not pass the fields of lists.
  local function is_another(field, own)
    return field ~= 'mode' and not (own and field == own.owner)
  end

  -- Checks one reader, and a second reader if the first is not covered for `need` ms. The first is the reader in
  -- `alive`, if any; otherwise a random reader. The second is random. `own` is skipped. Returns the longer of both
  -- covers in ms (0 = dead), and whether a reader of Java was checked. Returns nil if HRANDFIELD does not exist (before
  -- Redis 6.2) or is not permitted.
  local function ask_one(hash, tag, need, own)
    local best, java, one = 0, false, alive[hash]
    for i = 1, 2 do
      if i == 2 or not one then
        one = redis.pcall('hrandfield', hash)
        if refused(one) then return nil end
        one = string.gsub(one or 'mode', ':holds$', '')
      end
      if is_another(one, own) then
        java = java or not is_ours(one)
        -- Only cover 1 is checked, because usually a reader has no other.
        local now = redis.call('pttl', cover(tag, one, 1))
        if now > best then best, alive[hash] = now, one end
        if best >= need then break end
      end
    end
    return best, java
  end

  -- As `ask_one`, for SAMPLE random fields. Also returns the dead readers of ours among them.
  local function ask_some(hash, tag, need, own)
    local best, java, dead = 0, false, {}
    local flat = redis.call('hrandfield', hash, SAMPLE, 'withvalues')
    for i = 1, #flat, 2 do
      -- The values of the mode and of lists are not numbers.
      local field, count = flat[i], tonumber(flat[i + 1])
      if count and is_another(field, own) then
        local now = covered(tag, field, count, need)
        java = java or not is_ours(field)
        if now > best then
          best, alive[hash] = now, field
        elseif now <= 0 and is_ours(field) then
          dead[#dead + 1] = field
        end
        if best >= need then break end
      end
    end
    return best, java, dead
  end

  -- Returns for how many ms a hash in read mode must last for its readers: 0 = no reader is alive, nil = the lease
  -- stays. Also returns dead readers of ours, for `bury`. The hash has `fields` fields and `now` ms left. `own`: as for
  -- `longest`, plus `count`, its holds so far. `own.decided`: true if several readers have left, so that any of them
  -- may have set the lease.
  -- - At most FEW fields: the result is exact.
  -- - More fields: the lease stays if a checked reader is covered for at least that long, less SLACK. It also stays if
  --   `own` was covered for less, because then another reader set the lease. If `own` may have set the lease, all
  --   readers are searched as long as SEARCH allows; after that the lease stays.
  function lease_needed(hash, tag, fields, now, own)
    local enough = now < 0 and math.huge or math.max(now, 1)
    if fields <= FEW then return (longest(hash, tag, enough, own)) end
    local need, mine = math.max(enough - SLACK, 1), 0
    if own.left > 0 then mine = own.longer or covered(tag, own.owner, own.left, need) end
    local best, java, dead = mine, false, nil
    if mine < need then
      best, java = ask_one(hash, tag, need, own)
      if not best then return longest(hash, tag, enough, own) end
      best = math.max(best, mine)
    end
    if java or best < need then
      local decides = java or now < 0 or own.decided or covered(tag, own.owner, own.count, need) >= need
      if decides or best <= 0 then
        local some
        some, java, dead = ask_some(hash, tag, need, own)
        best = math.max(best, some)
        decides = java or decides and best < need
      end
      -- If no checked reader is alive, this search finds the dead readers, so that `bury` ends such searches.
      if best <= 0 or now < 0 or decides and fields <= search then
        search = search - fields
        return longest(hash, tag, best <= 0 and math.huge or enough, own)
      end
    end
    -- The lease is only extended here: if Java has shortened the hash, a cover may outlast it.
    return best > enough and best or nil, dead
  end

  -- Returns for how many ms at most readers keep a writer out of a hash in read mode; nil = no reader is alive. Also
  -- returns dead readers of ours, for `bury`. The hash has `left` ms left, -1 = no end.
  function readers_keep(hash, tag, left)
    local many, best, dead, _ = redis.call('hlen', hash) > FEW, nil, nil, nil
    if many then
      best = ask_one(hash, tag, 1)
      if best == 0 then best, _, dead = ask_some(hash, tag, 1) end
      if best and best > 0 then return left < 0 and best or left, dead end
    end
    local enough = (left < 0 or best) and math.huge or math.max(left, 1)
    best, dead = longest(hash, tag, enough)
    if best <= 0 then return nil end
    return left < 0 and best or math.min(left, best), many and dead
  end

  -- Deletes dead readers of ours, if any. Dead readers of Java stay, because Java's scripts rely on their fields.
  function bury(hash, dead)
    for i = 1, dead and #dead or 0, 256 do
      local fields = {}
      for j = i, math.min(i + 255, #dead) do
        fields[#fields + 1] = dead[j]
        fields[#fields + 1] = dead[j] .. ':holds'
      end
      redis.pcall('hdel', hash, unpack(fields))
    end
  end

  -- Applies the results of `lease_needed` to the hash, which had `now` ms left: removes `dead`, and sets the lease to
  -- `live` ms. `live` is nil (the lease stays) or above 0.
  function give_lease(hash, now, live, dead, publish, channel)
    bury(hash, dead)
    if not live then return end
    -- PTTL is read again: a millisecond may have passed, and the hash must not end before the covers.
    if live ~= redis.call('pttl', hash) then redis.call('pexpire', hash, live) end
    -- Waiters expect the old end. If the hash ends more than 1 s sooner, one waiter in each client is woken.
    if now - live > 1000 then redis.pcall(publish, channel, '0') end
  end

  -- An owner in the hash, for a reply that names the holder.
  function holder(hash)
    -- Two fields are requested, because one may be the mode.
    local two = redis.call('hlen', hash) > FEW and redis.pcall('hrandfield', hash, 2)
    if two and not refused(two) then
      local one = two[1] ~= 'mode' and two[1] or two[2]
      return (string.gsub(string.gsub(one, ':holds$', ''), ':write$', ''))
    end
    load_holds()
    return holds.somebody(hash) or 'nobody'
  end

  -- The reply for a busy lock that has `left` ms left: {left, 1} if a holder of Java was seen, else `left`. With more
  -- than FEW fields, only four are checked. Refused commands are ignored.
  function busy_for(hash, left)
    local n = redis.pcall('hlen', hash)
    local many = type(n) == 'number' and n > FEW
    for _, field in ipairs(many and redis.pcall('hrandfield', hash, 4) or redis.pcall('hkeys', hash)) do
      if field ~= 'mode' and field ~= 'revoke:holds' and not is_ours(field) then return {left, 1} end
    end
    return left
  end
end
