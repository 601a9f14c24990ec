-- Acquires for writing, or re-enters as the same owner.
-- KEYS   [1] the lock's hash.   [2] the owner's first cover.   [3] the marks of our waiting writers, if writers are
--        preferred (`covers.lua`).
-- ARGV   [1] owner.
--        [2] lease in ms; on re-entry a longer current lease stays.
--        [3] hold (`common/holds.lua`): '' or an id.
--        [4] a write hold that the owner must still have; '' = none.
--        [5] last moment in ms of the server's time; 0 = none; read only if [3] is an id.
--        [6] 1 = the owner must not hold the lock, in either mode.
--        [7] tag (`covers.lua`).
--        [8] for how many ms from now a writer that must wait holds back new readers; 0 = not at all.
-- Reply  `nil`     held; the hold is counted, and the lease runs from now.
--        `n`       busy: the writer's lease, or the longest of the readers', has n ms left; -1 = no end. With many
--                  readers, n is an upper bound.
--        `{n, 1}`  the same, and a client of Java was seen among the holders.
--        `-3`      the owner no longer has the hold of ARGV[4].
--        `-6`      the owner holds the lock for reading, and would wait for itself. With ARGV[6] also: the owner holds
--                  the lock for writing.
--        `{-7, at}` too late, nothing was done; at = the server's time in ms.
-- Idempotent: a repeat finds its hold counted, and at most restarts the lease. O(holds of this owner). Only some
-- readers are checked (`readers_keep` in `covers.lua`). O(readers) only if hardly any reader is alive; the script then
-- removes the dead readers of ours. Same state as Redisson's write lock, plus the list of holds. On re-entry, Redisson
-- adds the new lease to the current one; this script keeps the longer one. If every reader is dead, the writer does not
-- wait.

local hash, owner, hold, earlier, tag = KEYS[1], ARGV[1], ARGV[3], ARGV[4], ARGV[7]
local field, lease, announce = owner .. ':write', ARGV[2], tonumber(ARGV[8])
if hold ~= '' then
  load_holds()
  local late = holds.too_late(ARGV[5])
  if late then return late end
end

local function busy(left)
  if announce > 0 then
    load_holds()
    -- If ZADD is refused, nobody is held back. If PEXPIRE is refused, all marks are deleted: they might never expire.
    local mark = redis.pcall('zadd', KEYS[3], holds.clock() + announce, owner)
    if not refused(mark) and redis.call('pttl', KEYS[3]) < announce
      and refused(redis.pcall('pexpire', KEYS[3], announce)) then
      redis.pcall('del', KEYS[3])
    end
  end
  load_readers()
  return busy_for(hash, left)
end

local left = redis.call('pttl', hash)
local fresh, count, ids, again = left == -2, 0, '', false
if not fresh then
  local found = redis.call('hmget', hash, 'mode', field, owner)
  count = tonumber(found[2]) or 0
  if not found[1] then
    return foreign()
  elseif found[1] == 'read' then
    if found[3] and covered(tag, owner, tonumber(found[3]) or 0, 1) > 0 then return -6 end
    load_readers()
    local keep, dead = readers_keep(hash, tag, left)
    if keep then
      bury(hash, dead)
      return busy(keep)
    end
    if earlier ~= '' then return -3 end
    redis.call('del', hash)
    fresh, count = true, 0
  elseif count == 0 then
    return busy(left)
  elseif hold == '' then
    again = true
  else
    ids = holds.listed(hash, field)
    again = holds.is_counted(ids, hold)
    if not again and ARGV[6] == '1' then return -6 end
    if not again and earlier ~= '' and not holds.has(ids, count, earlier) then return -3 end
  end
elseif earlier ~= '' then
  return -3
end

local short = fresh or left < tonumber(lease)
if fresh then
  redis.call('hset', hash, 'mode', 'write', field, '1')
  if hold ~= '' then redis.call('hset', hash, field .. ':holds', ',' .. hold) end
elseif not again then
  holds.add(hash, field, count, ids, hold)
end

-- PEXPIRE always runs. If it is refused, the hold is removed (Acknowledgement and Undo in `common/holds.lua`).
local no = refused(redis.pcall('pexpire', hash, short and lease or left))
if no then
  if fresh then
    redis.call('del', hash)
  elseif not again then
    holds.put_back(hash, field, count, ids)
  end
  return no
end
-- If ZREM is refused, the mark stays until it expires.
if announce > 0 then redis.pcall('zrem', KEYS[3], owner) end
return nil
