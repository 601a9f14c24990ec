-- What the scripts of the read-write lock share: put in front of each of them at build time. State and terms: protocol 10.
--
-- One hash: `mode` is read or write; a reader's field is its owner, the writer's is its owner and `:write`. Hold n of a
-- reader has a key of its own, its cover, which lasts as long as that hold's lease. A reader none of whose covers is
-- left is dead: it holds nothing, although its field may still be there.
-- Everywhere: tag = the lock's name in braces, unless it has one of its own.
--
-- Of a cluster's slot that is being moved, some keys are here and some are not. A key of KEYS that is not here has the server
-- refuse the script before it begins; one that is found by what the hash says stops it where it stands, and what was written
-- before stays written. So (1) the owner's first covers are in KEYS, also for scripts that look at covers of others: a lock of
-- which only the hash is here is refused; (2) what must be read is read before the first write.

-- No owner has more holds for reading: a count beyond is somebody's forgery, and must not keep the server busy.
local MOST = 65536

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

-- For how long any reader is covered, in ms: 0 when none of them lives. `enough`: what the hash has left, if that is all
-- that matters beyond. No cover of ours outlives the hash, so that one which lasts as long decides, and the newest comes
-- first; but a watchdog of Java's (whose uuids are of version 4, ours of version 8) may have cut the hash short.
-- `own` = what one reader is about to be: its owner, how many holds it has `left`, and `anew` = how long the cover of the last
-- of them is about to last, where that changes.
local function longest(hash, tag, enough, own)
  local best, fields = 0, redis.call('hkeys', hash)
  local function stays(field)
    return field ~= 'mode' and (not own or own.left > 0 or field ~= own.owner)
  end
  for i = 1, #fields do
    if stays(fields[i]) and string.byte(fields[i], 15) ~= 56 then
      enough = math.huge
      break
    end
  end
  for i = #fields, 1, -1 do
    local field = fields[i]
    if stays(field) then
      local count
      if own and field == own.owner then
        count = own.left
        if own.anew then
          best, count = math.max(best, own.anew), count - 1
        end
      else
        count = tonumber(redis.call('hget', hash, field)) or 0
      end
      if best < enough then best = math.max(best, covered(tag, field, count, enough)) end
      if best >= enough then break end
    end
  end
  return best
end

local function holder(hash)
  load_holds()
  return holds.somebody(hash) or 'nobody'
end

-- What is said of a hash without a mode: it is a lock of another kind, and to write into it would spoil it.
local function foreign()
  return redis.error_reply('WRONGTYPE the key holds a lock of another kind')
end

local function refused(reply)
  return type(reply) == 'table' and reply.err and reply
end
