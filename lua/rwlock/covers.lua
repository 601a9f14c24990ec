-- Functions shared by the scripts of the read-write lock. The build puts this file in front of them. Terms:
-- docs/wire-format.md.
--
-- State. One hash: `mode` is read or write. A reader's field is its owner, the writer's is `<owner>:write`. Hold n of a
-- reader has a key of its own, its *cover*, which lasts as long as that hold's lease. A reader without a cover is dead:
-- it holds nothing, although its field may still be there. The *tag* is the lock's name in braces, or the bare name if
-- the name contains a brace.
--
-- Cost. There may be thousands of readers, so a script does not normally look at all of them. If the hash has few
-- fields, its lease is the longest cover, to the ms. If it has more, a script checks readers chosen at random
-- (`lease_needed`). The hash never ends before a live reader's cover, but may outlast all covers.
--
-- Moving slots. While a cluster moves a slot, some keys are here and some are not. If a key of KEYS is missing here,
-- the server refuses the script before it starts. A missing key that is not in KEYS stops the script midway, and its
-- earlier writes stay. Therefore:
-- 1. The owner's first covers are in KEYS, also for scripts that write next to covers of others. So if only the lock's
--    hash is here, the script is refused. `state.lua` has only the hash in KEYS, because it has no owner. It writes
--    nothing, so it may fail midway.
-- 2. A script reads everything that it needs before its first write.

-- Upper limit of one owner's read holds. A higher count is forged, and must not keep the server busy.
local MOST = 65536
-- Up to this many fields ("few"), a script reads all readers.
local FEW = 16
-- SAMPLE: how many random readers a command checks at a time. SEARCH: how many fields a command may search in all.
local SAMPLE, SEARCH = 16, 256
-- By how many ms the hash of many readers may outlast them before it is shortened.
local SLACK = 5000

-- `search`: what is left of SEARCH. `alive`: per hash, a reader that this command found alive.
local search, alive = SEARCH, {}
-- In a command of many steps: hashes that readers have left, whose leases are checked after the last step. Otherwise nil.
local deferred

local function cover(tag, owner, n)
  return tag .. ':' .. owner .. ':rwlock_timeout:' .. n
end

-- Returns how long a reader is covered, in ms; 0 = it is dead. Stops looking once `enough` is reached.
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

-- Creates these functions. Every path of a script calls this before it uses them. Other paths skip it to save the cost.
local function load_readers()
  if lease_needed then return end

  -- Our uuids have version 8, Java's have version 4.
  local function is_ours(owner)
    return string.byte(owner, 15) == 56
  end

  -- Returns how long the longest cover lasts, in ms (0 = no reader is alive), and the dead readers of ours that the
  -- search met. O(fields). `enough`: a cover that lasts this many ms ends the search, which starts with the newest
  -- reader. Callers usually pass what the hash has left, because a cover of ours never outlives the hash. If there is a
  -- reader of Java, all readers are read, because Java's watchdog may have shortened the hash. `own`: the planned state
  -- of one reader: its `owner`, the number of holds `left`, and `anew`, the new lease of its last cover if that
  -- changes.
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
          if own.anew then
            now, count = own.anew, count - 1
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

  -- True if the field belongs to a reader other than `own`. Every list of holds counts as another reader.
  local function is_another(field, own)
    return field ~= 'mode' and not (own and field == own.owner)
  end

  -- Checks one reader, and a second reader if the first is not covered for `need` ms. The first is the reader in
  -- `alive`, if any; otherwise a random one. Skips `own`. Returns the longer of both covers in ms (0 = dead), and
  -- whether one of the readers is Java's. Returns nil if HRANDFIELD does not exist (before Redis 6.2) or is not
  -- permitted.
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
        -- Usually a reader has only its first cover.
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
      -- The mode and lists of holds are not numbers.
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

  -- Returns for how many ms a hash in read mode must last for its readers: 0 = none is alive, nil = leave it as it is.
  -- Also returns dead readers of ours, for `bury`. The hash has `fields` fields and `now` ms left. `own`: as for
  -- `longest`, plus `count`, its holds so far. `decided`: true if several readers have left; any of them may have set
  -- the lease.
  -- - Few fields: the result is exact.
  -- - More fields: the hash keeps its lease if a reader is covered for at least that long, less SLACK. It also keeps
  --   its lease if `own` was covered for less, because then another reader set the lease. If `own` may have set the
  --   lease, all readers are searched while SEARCH allows. Beyond SEARCH the hash keeps its lease too.
  function lease_needed(hash, tag, fields, now, own)
    local enough = now < 0 and math.huge or math.max(now, 1)
    if fields <= FEW then return (longest(hash, tag, enough, own)) end
    local need, mine = math.max(enough - SLACK, 1), 0
    if own.left > 0 then mine = own.anew or covered(tag, own.owner, own.left, need) end
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
      -- If hardly any reader is alive, the dead are removed, so that the search is not repeated.
      if best <= 0 or now < 0 or decides and fields <= search then
        search = search - fields
        return longest(hash, tag, best <= 0 and math.huge or enough, own)
      end
    end
    -- The hash is not shortened here, but extended if Java has shortened it.
    return best > enough and best or nil, dead
  end

  -- Returns an upper bound, in ms, for how long readers keep a writer out of a hash in read mode; nil = no reader is alive. The
  -- hash has `left` ms left, -1 = no end. Also returns dead readers of ours, for `bury`.
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

  -- Applies a result of `lease_needed` above 0 to a hash in read mode that had `now` ms left.
  function give_lease(hash, now, live, dead, publish, channel)
    bury(hash, dead)
    if not live then return end
    -- Read again: a millisecond may have passed, and the hash must not end before the covers.
    if live ~= redis.call('pttl', hash) then redis.call('pexpire', hash, live) end
    -- Waiters expect a later end, so one is woken in each client.
    if now - live > 1000 then redis.pcall(publish, channel, '0') end
  end

  -- An owner in the hash, for a reply that names the holder.
  function holder(hash)
    -- Two, because one may be the mode.
    local two = redis.call('hlen', hash) > FEW and redis.pcall('hrandfield', hash, 2)
    if two and not refused(two) then
      local one = two[1] ~= 'mode' and two[1] or two[2]
      return (string.gsub(string.gsub(one, ':holds$', ''), ':write$', ''))
    end
    load_holds()
    return holds.somebody(hash) or 'nobody'
  end

  -- The reply for a busy lock that has `left` ms left: {left, 1} if a client of Java was seen to hold it, else `left`.
  -- With many readers, only some are checked. Refused commands are ignored.
  function busy_for(hash, left)
    local n = redis.pcall('hlen', hash)
    local many = type(n) == 'number' and n > FEW
    for _, field in ipairs(many and redis.pcall('hrandfield', hash, 4) or redis.pcall('hkeys', hash)) do
      if field ~= 'mode' and not is_ours(field) then return {left, 1} end
    end
    return left
  end
end
