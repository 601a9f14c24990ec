-- Functions shared by the scripts that acquire or release holds. The build puts this file in front of them.
--
-- Terms of all scripts:
-- - Owner: a field of the lock's hash. Its value is the owner's count: the number of its holds.
-- - Hold: one acquire that has not been released. Each re-entry is one more hold of the owner.
-- - Fresh owner: created for one acquire, and known only to its client. It has one hold at most.
-- - List: the field `<owner>:holds`, with one entry `,id` per listed hold. Each acquire by an owner that the caller
--   gave, or that the client reuses, lists its hold under a new id. So a repeated acquire does not raise the count, and
--   a release removes only the hold of its own acquire. `,+id` is a hold without a guard: the guard was turned into its
--   owner (`disown.lua`).
-- - Repeat: a command that the client sends again. Late copy: a command that runs after its client has stopped waiting.
-- - Last moment, by the server's clock: a command that runs later replies `{-7, at}` and does nothing. Only a release
--   that names its hold still releases, but makes no lease shorter.
-- - Acknowledgement: `WAIT` counts the replicas that have this connection's last write. So even a script that changes
--   no lease writes the lease again.
-- - Undo: Redis does not roll a script back. If the server refuses the lease (by the access list, for example), the
--   script removes the hold that it has written, because a lock without a lease never expires.
--
-- ARGV names a hold in one of these ways:
-- - '': the only hold that this owner will ever have. If the owner has a list nevertheless, '' means the unlisted hold:
--   others have acquired as this owner since, or a command that shortens the lease was noted.
-- - '-': the unlisted hold, which is counted but not listed. Its owner was fresh at the acquire, and became known to
--   others later.
-- - '*': any hold (see `any`); only in releases. The unlisted hold is released at once, so a repeat may release another
--   unlisted hold until its last moment. For a listed hold, the script only returns the id.
-- - Otherwise the hold's id. A release may name several ids, separated by commas.
--
-- Two kinds of commands shorten a lease. A late copy of such a command shortens nothing:
-- - A release: the late copy finds its hold gone.
-- - A numbered command: it writes `~n` (n = its number) behind the hold's id, or at the front of the list for the
--   unlisted hold. Afterwards a command with this or a lower number changes no lease.
--
-- In all functions: hash = the lock's hash; field = the owner's field; count, ids = the owner's count and list.

local holds

-- Creates `holds`. A script calls this before it uses `holds`. A path that needs only the single hold of a fresh owner
-- does not call it, because building the table costs time. All functions are in one table constructor: adding them one
-- by one would take 1.5 times as long.
local function load_holds()
  if holds then return end
  holds = {
    listed = function(hash, field)
      return redis.call('hget', hash, field .. ':holds') or ''
    end,

    -- Position of the comma in front of this id in a list; nil if the id is not listed. `id` may start with `+`.
    find = function(ids, id)
      return string.find(ids .. ',', ',' .. id .. ',', 1, true) or string.find(ids, ',' .. id .. '~', 1, true)
    end,

    -- True if the list has this id, as `id` or `+id`.
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

    -- True if the owner has this hold: '-', or an id as in the list.
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

    -- The reply of a command that runs after its last moment `last`; nil if the command is in time, or `last` is '0'.
    too_late = function(last)
      if last == '0' then return nil end
      local at = holds.clock()
      return at > tonumber(last) and {-7, at} or nil
    end,

    -- Counts and lists one more hold.
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

    -- Writes the count and list of an owner that keeps some holds. HSET comes first: a server short of memory refuses
    -- it before anything has changed.
    write = function(hash, field, count, ids)
      if ids == '' then
        redis.call('hset', hash, field, count)
        redis.call('hdel', hash, field .. ':holds')
      else
        redis.call('hset', hash, field, count, field .. ':holds', ids)
      end
    end,

    -- The hold that '*' stands for: a hold without a guard (`+id`), else the unlisted hold ('-'), else the newest id.
    any = function(ids, count)
      return string.match(ids, '%+[^,~]*') or holds.unlisted(count, ids) > 0 and '-' or string.match(ids, '.*,([^,~]*)')
    end,

    -- The owner's list and count without the holds in `hold` ('-' and ids, separated by commas). Nil if none exists.
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

    -- As `remaining`, but `hold` may also be '*'. Instead of nil, returns nil and the script's reply.
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

    -- The owner's holds as a set of ids, with '-' for the unlisted hold. A set, because owners may have thousands of
    -- holds.
    members = function(ids, count)
      local there = {['-'] = holds.unlisted(count, ids) > 0}
      for id in string.gmatch(ids, ',([^,~]+)') do there[id] = true end
      return there
    end,

    -- `wanted`: one `,id` per hold ('-' = the unlisted hold). Returns the indexes of the holds that are gone, and
    -- whether the owner has holds that are not in `wanted`; nil if all holds in `wanted` are gone.
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

    -- Sets the lease after a release that leaves holds. `mine`: the holds that remain to the caller, one `,id` each. If
    -- the owner has no others, and the last moment has not passed, the lease may become shorter. Otherwise the lease
    -- can only become longer.
    rearm = function(hash, lease, left, ids, mine, last)
      local decides = mine ~= '' and holds.are_all(ids, left, mine) and not holds.too_late(last)
      if decides or redis.call('pttl', hash) < tonumber(lease) then
        redis.call('pexpire', hash, lease)
      end
    end,

    -- The list with `~n` written at this hold, which notes command n. Nil if the hold is gone, or if this number or a
    -- higher one was noted before.
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

    -- Writes `~n` at this hold in Redis. Returns true if the command with number n may shorten the lease, false if
    -- `noted` returns nil, and the server's error if the write is refused.
    cut_once = function(hash, field, count, ids, hold, n)
      local list = holds.noted(count, ids, hold, n)
      if not list then return false end
      return holds.note(hash, field, list) or true
    end,

    -- For a renewal of the holds in `wanted`. Returns 0 if all are gone. Otherwise returns 1, the indexes of the holds
    -- that are gone, what to do with the lease, and a list to write first, if any. For the lease: 'longer' = it must
    -- not become shorter; 'set' = it may; 'leave' = no change. `exactly`: the renewal may shorten the lease, and the
    -- first hold in `wanted` carries the command's number. Does not access Redis.
    relied = function(count, ids, wanted, exactly)
      count = tonumber(count) or 0
      local number = string.match(wanted, '~(%d+)')
      wanted = string.gsub(wanted, '~%d+', '')
      -- '' names a hold that is not listed.
      if wanted == '' then wanted = ',-' end
      local gone, others = holds.missing(ids, count, wanted)
      if not gone then return 0 end
      if not exactly then return 1, gone, 'longer' end
      -- The number is noted even if other holds forbid a shorter lease now: they may be gone when a late copy runs.
      local list = holds.noted(count, ids, string.match(wanted, '^,([^,]*)'), number)
      return 1, gone, not list and 'leave' or others and 'longer' or 'set', list
    end,
  }
end
