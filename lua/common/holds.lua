-- What scripts share that take and give back holds of an owner: put in front of them at build time.
--
-- An owner that can be used again has its holds listed in a field of the lock's hash beside its count: `<owner>:holds`, one
-- `,id` a hold. An acquire makes up the id and never uses it again, so that a repeat counts nothing, and a release gives
-- back what that acquire took, however late it comes. `,+id` = a hold that lost its guard. The list goes with the hash,
-- whoever deletes that.
-- How a hold is named in ARGV: '' = the only one this owner will ever have; '-' = the one that is not listed, of an owner
-- that became known only afterwards; '*' = any (see `any`); else its id. A release may name several, with commas.
-- A lease is made shorter by a release, a copy of which finds its hold gone, or by a command with a number: `~n` stands
-- behind the id then, at the front of the list for a hold that is not listed. A copy of that command, or of one before it,
-- finds its number used.

local holds

-- Makes `holds`. A script calls this on every path before it uses `holds`; whoever takes or gives back the only hold of a
-- fresh owner does without, which costs less than the making. All at once: a table that grows costs half as much again.
local function load_holds()
  if holds then return end
  holds = {
    listed = function(hash, field)
      return redis.call('hget', hash, field .. ':holds') or ''
    end,

    -- Where an id stands in a list, with the comma in front; nil = it does not.
    find = function(ids, id)
      return string.find(ids .. ',', ',' .. id .. ',', 1, true) or string.find(ids, ',' .. id .. '~', 1, true)
    end,

    -- Was this hold counted by its acquire, and not given back since?
    is_counted = function(ids, id)
      return (holds.find(ids, id) or holds.find(ids, '+' .. id)) ~= nil
    end,

    -- Where the entry behind the one at `at` begins.
    behind_id = function(ids, at)
      return string.find(ids, ',', at + 1, true) or #ids + 1
    end,

    unlisted = function(count, ids)
      local _, n = string.gsub(ids, ',', '')
      return count - n
    end,

    -- Is this hold among those of an owner that has `count` of them?
    has = function(ids, count, hold)
      if hold == '-' then return holds.unlisted(count, ids) > 0 end
      return holds.find(ids, hold) ~= nil
    end,

    -- A list without one of its ids, if it is there.
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

    -- After its last moment a command has no effect: the reply that says so, with the time. '0' = it has none.
    too_late = function(last)
      if last == '0' then return nil end
      local at = holds.clock()
      return at > tonumber(last) and {-7, at} or nil
    end,

    -- Counts a hold up for an owner that has `count` others already.
    add = function(hash, field, count, ids, hold)
      redis.call('hset', hash, field, math.floor(count) + 1, field .. ':holds', ids .. ',' .. hold)
    end,

    -- Puts an owner's count and list back to what they were.
    put_back = function(hash, field, count, ids)
      redis.pcall('hset', hash, field, count)
      if ids == '' then
        redis.pcall('hdel', hash, field .. ':holds')
      else
        redis.pcall('hset', hash, field .. ':holds', ids)
      end
    end,

    -- Writes what is left to an owner that keeps some. A command that memory is short for is refused before it changes
    -- anything.
    write = function(hash, field, count, ids)
      if ids == '' then
        redis.call('hset', hash, field, count)
        redis.call('hdel', hash, field .. ':holds')
      else
        redis.call('hset', hash, field, count, field .. ':holds', ids)
      end
    end,

    -- The hold that a release gives back which names none: one that lost its guard, else the one that is not listed, else the
    -- newest.
    any = function(ids, count)
      return string.match(ids, '%+[^,~]*') or holds.unlisted(count, ids) > 0 and '-' or string.match(ids, '.*,([^,~]*)')
    end,

    -- What is left of an owner's list and count without this hold, or these (ids with commas between them); nil when none of
    -- them is there.
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

    -- As `remaining`, for a release that names a hold or '*'; else nil and its reply.
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

    -- A list as a set, with '-' where one is not listed: owners may have thousands of holds.
    members = function(ids, count)
      local there = {['-'] = holds.unlisted(count, ids) > 0}
      for id in string.gmatch(ids, ',([^,~]+)') do there[id] = true end
      return there
    end,

    -- Which of the holds in a list are gone, by their numbers in it, and whether the owner has others; nil = all are gone.
    missing = function(ids, count, wanted)
      local there, gone, n = holds.members(ids, count), {}, 0
      for id in string.gmatch(wanted, '[^,]+') do
        n = n + 1
        if not there[id] then gone[#gone + 1] = n end
      end
      if #gone < n then return gone, count > n - #gone end
    end,

    -- Some owner in a hash: the holder that an answer names; nil = there is none.
    somebody = function(hash)
      for _, field in ipairs(redis.call('hkeys', hash)) do
        if field ~= 'mode' and string.sub(field, -6) ~= ':holds' then return (string.gsub(field, ':write$', '')) end
      end
      return nil
    end,

    -- Is what this owner has left just these holds, one `,id` each ('-' = one that is not listed)?
    are_all = function(ids, count, wanted)
      local there, n = holds.members(ids, count), 0
      for id in string.gmatch(wanted, '[^,]+') do
        if not there[id] then return false end
        n = n + 1
      end
      return n == count
    end,

    -- The lease of what a release leaves. `mine`: the holds that the caller has left; where the owner has no others, the
    -- lease is set as told, up to its last moment. Else no lease becomes shorter.
    rearm = function(hash, lease, left, ids, mine, last)
      local decides = mine ~= '' and holds.are_all(ids, left, mine) and not holds.too_late(last)
      if decides or redis.call('pttl', hash) < tonumber(lease) then
        redis.call('pexpire', hash, lease)
      end
    end,

    -- An owner's list with command number n of those that make the lease of this hold shorter, of an owner that has so many;
    -- nil = that number or a higher one was noted before, or the hold is gone.
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

    -- Writes a list that `noted` made; the server's error where it refuses that.
    note = function(hash, field, list)
      local done = redis.pcall('hset', hash, field .. ':holds', list)
      return type(done) == 'table' and done or nil
    end,

    -- Notes a command as `noted` says. True = it may cut the lease; false = it may not; an error = the server refused to note it.
    cut_once = function(hash, field, count, ids, hold, n)
      local list = holds.noted(count, ids, hold, n)
      if not list then return false end
      return holds.note(hash, field, list) or true
    end,

    -- For a renewal of the holds that are relied on, of an owner that has so many, in these words: 1, those that are gone by
    -- their numbers in the list, what to do with the lease ('longer', 'set', 'leave'), and the list that is to be written before
    -- that, if any; or 0: all are gone. `exactly`: with the number of the command behind the first of them. Reads and writes nothing.
    relied = function(count, ids, wanted, exactly)
      count = tonumber(count) or 0
      local number = string.match(wanted, '~(%d+)')
      wanted = string.gsub(wanted, '~%d+', '')
      -- Others may have come in as this owner, perhaps behind it.
      if wanted == '' then wanted = ',-' end
      local gone, others = holds.missing(ids, count, wanted)
      if not gone then return 0 end
      if not exactly then return 1, gone, 'longer' end
      -- Noted also where it may not cut now: the others may be gone when a copy comes in.
      local list = holds.noted(count, ids, string.match(wanted, '^,([^,]*)'), number)
      return 1, gone, not list and 'leave' or others and 'longer' or 'set', list
    end,
  }
end
