-- Functions shared by the scripts that acquire or release holds. The build puts this file in front of them.
--
-- An owner that the caller gives, or that this client reuses, may have several holds. The field `<owner>:holds`, next
-- to the owner's count, lists them: one `,id` per hold. Each acquire creates a new id. So a repeated acquire does not
-- raise the count, and a release removes only the hold of its own acquire, even if the release arrives late. `,+id` is
-- a hold without a guard: the guard gave it to its owner (`disown.lua`).
--
-- ARGV names a hold in one of these ways:
-- - '': the only hold that this owner will ever have.
-- - '-': the unlisted hold, which is counted but has no id in the list. Its owner was fresh at the acquire, and others
--   learned of the owner later.
-- - '*': any hold (see `any`).
-- - Otherwise the hold's id. A release may name several ids, separated by commas.
--
-- Two kinds of commands shorten a lease. A late copy of either shortens nothing:
-- - A release: the copy finds its hold gone.
-- - A numbered command: it writes `~n` behind the hold's id, or at the front of the list for an unlisted hold. A late
--   copy of it, or of a command with a lower number, finds this number.

local holds

-- Creates `holds`. Every path of a script calls this before it uses `holds`. A path that concerns only the single hold
-- of a fresh owner does not call it, because building the table costs time. All functions are in one table constructor:
-- adding them one by one would take 1.5 times as long.
local function load_holds()
  if holds then return end
  holds = {
    listed = function(hash, field)
      return redis.call('hget', hash, field .. ':holds') or ''
    end,

    -- Position of an id in a list, at the comma in front of it; nil if it is not listed.
    find = function(ids, id)
      return string.find(ids .. ',', ',' .. id .. ',', 1, true) or string.find(ids, ',' .. id .. '~', 1, true)
    end,

    -- True if this hold was counted by its acquire, and not released since.
    is_counted = function(ids, id)
      return (holds.find(ids, id) or holds.find(ids, '+' .. id)) ~= nil
    end,

    -- Position after the entry that starts at `at`.
    behind_id = function(ids, at)
      return string.find(ids, ',', at + 1, true) or #ids + 1
    end,

    unlisted = function(count, ids)
      local _, n = string.gsub(ids, ',', '')
      return count - n
    end,

    -- True if an owner with `count` holds has this one.
    has = function(ids, count, hold)
      if hold == '-' then return holds.unlisted(count, ids) > 0 end
      return holds.find(ids, hold) ~= nil
    end,

    -- The list without this id, if it is there.
    without = function(ids, id)
      local at = holds.find(ids, id)
      if not at then return ids end
      return string.sub(ids, 1, at - 1) .. string.sub(ids, holds.behind_id(ids, at))
    end,

    -- The server's time in ms.
    clock = function()
      local now = redis.call('time')
      return now[1] * 1000 + math.floor(now[2] / 1000)
    end,

    -- The reply of a command that arrives after its last moment; nil if the command is in time. '0' = no last moment.
    too_late = function(last)
      if last == '0' then return nil end
      local at = holds.clock()
      return at > tonumber(last) and {-7, at} or nil
    end,

    -- Counts one more hold for an owner that has `count`.
    add = function(hash, field, count, ids, hold)
      redis.call('hset', hash, field, math.floor(count) + 1, field .. ':holds', ids .. ',' .. hold)
    end,

    -- Restores an owner's count and list.
    put_back = function(hash, field, count, ids)
      redis.pcall('hset', hash, field, count)
      if ids == '' then
        redis.pcall('hdel', hash, field .. ':holds')
      else
        redis.pcall('hset', hash, field .. ':holds', ids)
      end
    end,

    -- Writes the count and list of an owner that keeps some holds. HSET comes first: a server short of memory refuses it
    -- before anything has changed.
    write = function(hash, field, count, ids)
      if ids == '' then
        redis.call('hset', hash, field, count)
        redis.call('hdel', hash, field .. ':holds')
      else
        redis.call('hset', hash, field, count, field .. ':holds', ids)
      end
    end,

    -- The hold that a release without a hold's id means: a hold without a guard, else the unlisted hold, else the
    -- newest.
    any = function(ids, count)
      return string.match(ids, '%+[^,~]*') or holds.unlisted(count, ids) > 0 and '-' or string.match(ids, '.*,([^,~]*)')
    end,

    -- The owner's list and count without these holds (ids separated by commas). Nil if none of them exists.
    remaining = function(ids, count, hold)
      count = math.floor(count)
      local left = count
      for id in string.gmatch(hold, '[^,]+') do
        if holds.has(ids, left, id) then
          left = left - 1
          ids = holds.without(ids, id)
        end
      end
      if left == count then return nil end
      return ids, left
    end,

    -- As `remaining`, for a release that names a hold or '*'. If nothing is released, returns nil and the script's reply.
    give_back = function(ids, count, hold, last)
      if hold == '*' then
        hold = holds.any(ids, count) or '-'
        if hold ~= '-' then return nil, {-8, hold} end
        local late = holds.too_late(last)
        if late then return nil, late end
      end
      local left
      ids, left = holds.remaining(ids, count, hold)
      if not ids then return nil, {-2, count} end
      return ids, left
    end,

    -- The list as a set, with '-' for an unlisted hold. A set, because owners may have thousands of holds.
    members = function(ids, count)
      local there = {['-'] = holds.unlisted(count, ids) > 0}
      for id in string.gmatch(ids, ',([^,~]+)') do there[id] = true end
      return there
    end,

    -- Returns the indexes in `wanted` of the holds that are gone, and whether the owner has other holds; nil if all are gone.
    missing = function(ids, count, wanted)
      local there, gone, n = holds.members(ids, count), {}, 0
      for id in string.gmatch(wanted, '[^,]+') do
        n = n + 1
        if not there[id] then gone[#gone + 1] = n end
      end
      if #gone < n then return gone, count > n - #gone end
    end,

    -- An owner in the hash, for a reply that names the holder; nil if there is none.
    somebody = function(hash)
      for _, field in ipairs(redis.call('hkeys', hash)) do
        if field ~= 'mode' and string.sub(field, -6) ~= ':holds' then return (string.gsub(field, ':write$', '')) end
      end
      return nil
    end,

    -- True if the owner's holds are exactly those in `wanted`, one `,id` each ('-' = the unlisted hold).
    are_all = function(ids, count, wanted)
      local there, n = holds.members(ids, count), 0
      for id in string.gmatch(wanted, '[^,]+') do
        if not there[id] then return false end
        n = n + 1
      end
      return n == count
    end,

    -- Sets the lease after a release that leaves holds. `mine`: the ids of the holds that remain to the caller. If
    -- these are all holds of the owner, and the last moment has not passed, the lease may become shorter. Otherwise it
    -- can only become longer.
    rearm = function(hash, lease, left, ids, mine, last)
      local decides = mine ~= '' and holds.are_all(ids, left, mine) and not holds.too_late(last)
      if decides or redis.call('pttl', hash) < tonumber(lease) then
        redis.call('pexpire', hash, lease)
      end
    end,

    -- Returns the list with numbered command `n` noted on this hold of an owner with `count` holds. Returns nil if the hold
    -- is gone, or if this number or a higher one was noted before.
    noted = function(count, ids, hold, n)
      local from = 0
      if hold == '' or hold == '-' then
        if holds.unlisted(count, ids) < 1 then return nil end
      else
        from = holds.find(ids, hold)
        if not from then return nil end
        from = from + #hold
      end
      local used = string.match(ids, '^~(%d+)', from + 1)
      if used and tonumber(used) >= tonumber(n) then return nil end
      return string.sub(ids, 1, from) .. '~' .. n .. string.sub(ids, from + 1 + (used and #used + 1 or 0))
    end,

    -- Writes a list that `noted` made. Returns the server's error if the write is refused.
    note = function(hash, field, list)
      local done = redis.pcall('hset', hash, field .. ':holds', list)
      return type(done) == 'table' and done or nil
    end,

    -- Notes a command as `noted` does. Returns true if the command may shorten the lease, false if not, and the
    -- server's error if the write is refused.
    cut_once = function(hash, field, count, ids, hold, n)
      local list = holds.noted(count, ids, hold, n)
      if not list then return false end
      return holds.note(hash, field, list) or true
    end,

    -- For a renewal of the holds in `wanted`. Returns 0 if all are gone. Otherwise returns 1, the indexes of the holds
    -- that are gone, what to do with the lease ('longer', 'set', 'leave'), and a list to write first, if any.
    -- `exactly`: the lease may also become shorter, and the first hold in `wanted` carries the command's number. Reads
    -- and writes nothing in Redis.
    relied = function(count, ids, wanted, exactly)
      count = tonumber(count) or 0
      local number = string.match(wanted, '~(%d+)')
      wanted = string.gsub(wanted, '~%d+', '')
      -- The caller knows of one hold only. This hold is the unlisted one, because others may have acquired as this
      -- owner.
      if wanted == '' then wanted = ',-' end
      local gone, others = holds.missing(ids, count, wanted)
      if not gone then return 0 end
      if not exactly then return 1, gone, 'longer' end
      -- The number is noted even if other holds forbid a shorter lease now: they may be gone when a copy arrives.
      local list = holds.noted(count, ids, string.match(wanted, '^,([^,]*)'), number)
      return 1, gone, not list and 'leave' or others and 'longer' or 'set', list
    end,
  }
end
