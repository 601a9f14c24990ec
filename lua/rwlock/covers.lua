-- What the scripts of the read-write lock share: put in front of each of them at build time. State and terms:
-- docs/wire-format.md.
--
-- One hash: `mode` is read or write; a reader's field is its owner, the writer's is its owner and `:write`. Hold n of a
-- reader has a key of its own, its cover, which lasts as long as that hold's lease. A reader none of whose covers is
-- left is dead: it holds nothing, although its field may still be there.
-- Everywhere: tag = the lock's name in braces, unless it has one of its own.
--
-- No script looks at all readers as a matter of course: there may be thousands. With few fields in the hash its lease is what
-- those in it are covered for, to the ms. With more, a script asks some readers, chosen at random. The hash never ends before
-- a live reader's cover, and may last longer than all of them: see `lease_needed`.
--
-- Of a cluster's slot that is being moved, some keys are here and some are not. A key of KEYS that is not here has the server
-- refuse the script before it begins; one that is found by what the hash says stops it where it stands, and what was written
-- before stays written. So (1) the owner's first covers are in KEYS, also for scripts that write beside covers of others: a lock of
-- which only the hash is here is refused. `state` has no owner, writes nothing and has the hash alone: it may fail half way. (2) What must be read is read before the first write.

-- No owner has more holds for reading: a count beyond is somebody's forgery, and must not keep the server busy.
local MOST = 65536
-- Up to this number of fields a hash has few.
local FEW = 16
-- How many readers a command asks at random at a time, and through how many fields a command searches, taken together.
local SAMPLE, SEARCH = 16, 256
-- For how many ms the hash of many readers may outlast them without being cut.
local SLACK = 5000

-- What is left of SEARCH, and for each hash a reader that this command found alive.
local search, alive = SEARCH, {}
-- Of a command of many steps: the hashes that readers have left, whose leases are looked at in the end. Else nil.
local deferred

local function cover(tag, owner, n)
  return tag .. ':' .. owner .. ':rwlock_timeout:' .. n
end

-- For how long a reader is covered, in ms; not above 0 when it is dead. Looks no further once `enough` is reached.
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

-- What is said of a hash without a mode: it is a lock of another kind, and to write into it would spoil it.
local function foreign()
  return redis.error_reply('WRONGTYPE the key holds a lock of another kind')
end

-- What looks at other readers than the one that a script is about.
local lease_needed, readers_keep, bury, give_lease, holder

-- Makes these. A script calls this on every path before it uses them; whoever comes in, or is alone, does without, which costs
-- less than the making.
local function load_readers()
  if lease_needed then return end

  -- Ours have uuids of version 8, Java's of version 4.
  local function is_ours(owner)
    return string.byte(owner, 15) == 56
  end

  -- For how long any reader is covered, in ms: 0 when none of them lives; and those of ours that are dead, as far as they were
  -- asked. O(fields). `enough`: what the hash has left, if that is all that matters beyond. No cover of ours outlives the hash, so
  -- that one which lasts as long decides, and the newest comes first; but a watchdog of Java's may have cut the hash short.
  -- `own` = what one reader is about to be: its owner, how many holds it has `left`, and `anew` = how long the cover of the last
  -- of them is about to last, where that changes.
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

  -- Is this field another reader than `own`, or its list of holds?
  local function is_another(field, own)
    return field ~= 'mode' and not (own and field == own.owner)
  end

  -- Asks a reader other than `own`, chosen at random, and a second one where that is not covered for `need` ms: for how long the
  -- better one is (0 = dead), and whether one is Java's. nil where the server does not choose at random: before Redis 6.2, or for
  -- want of that right.
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
        -- Mostly its first cover is all there is.
        local now = redis.call('pttl', cover(tag, one, 1))
        if now > best then best, alive[hash] = now, one end
        if best >= need then break end
      end
    end
    return best, java
  end

  -- As `ask_one`, of SAMPLE fields; and those readers of ours among them that are dead.
  local function ask_some(hash, tag, need, own)
    local best, java, dead = 0, false, {}
    local flat = redis.call('hrandfield', hash, SAMPLE, 'withvalues')
    for i = 1, #flat, 2 do
      -- The mode and lists of holds are no numbers.
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

  -- What a hash in read mode of so many fields, which has `now` ms left, is to last for those in it: so many ms; 0 = none of them
  -- lives; nil = as it is. And those of ours that are dead, for `bury`. `own`: as for `longest`, and its `count` of holds so far;
  -- or `decided` = several are gone already, any of whom may have been the one that decided.
  -- Few fields: to the ms. More: it stays where somebody lasts as long, give or take SLACK, and where `own` did not, for then it
  -- was not the one that decided. Where `own` may have decided, all are searched, while SEARCH allows; beyond that it stays too.
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
      -- Where hardly anybody lives, whoever is dead is taken out, so that this is not to be done again.
      if best <= 0 or now < 0 or decides and fields <= search then
        search = search - fields
        return longest(hash, tag, best <= 0 and math.huge or enough, own)
      end
    end
    -- Never cut here, but made longer where Java has cut it.
    return best > enough and best or nil, dead
  end

  -- For how many ms at the most readers keep a writer out of a hash in read mode that has `left` ms left, -1 = no end; nil = none of
  -- them lives. And those of ours that are dead, for `bury`.
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

  -- Takes out readers of ours that are dead, if any. Java's stay: it counts on their fields.
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

  -- Does to a hash in read mode that had `now` ms left what `lease_needed` says where somebody in it lives.
  function give_lease(hash, now, live, dead, publish, channel)
    bury(hash, dead)
    if not live then return end
    -- Asked anew: a millisecond may have gone by, and the hash must not end before the covers.
    if live ~= redis.call('pttl', hash) then redis.call('pexpire', hash, live) end
    -- Waiters have heard of a later end.
    if now - live > 1000 then redis.pcall(publish, channel, '0') end
  end

  -- Some owner in a hash: the holder that an answer names.
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
end
