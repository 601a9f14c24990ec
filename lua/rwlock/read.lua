-- Acquires for reading. Other readers may hold the lock, or the same owner may hold it for writing.
-- KEYS   [1] the lock's hash.   [2] the owner's first cover.   [3] the marks of our waiting writers (`covers.lua`).
-- ARGV   [1] owner.
--        [2] lease in ms of this hold.
--        [3] hold (`common/holds.lua`): '' or an id.
--        [4] a read hold that the owner must still have; '' = none.
--        [5] last moment in ms of the server's time; 0 = none; read only if [3] is an id.
--        [6] 1 = the owner must not hold the lock, in either mode.
--        [7] tag (`covers.lua`).
--        [8] 1 = yields to waiting writers, unless the owner holds the lock already.
-- Reply  `nil`     held; the hold is counted, and its lease runs from now.
--        `n`       busy: a writer's lease has n ms left; -1 = no end.
--        `{n, 1}`  the same, and the writer is a client of Java.
--        `-3`      the owner no longer has the hold of ARGV[4].
--        `-5`      held back: a writer waits.
--        `-6`      the owner holds the lock already (only with ARGV[6]).
--        `{-7, at}` too late, nothing was done; at = the server's time in ms.
-- Idempotent: a repeat finds its hold counted, and at most restarts the lease. O(1) if [3] is '', else O(holds of this
-- owner). Same state as Redisson's read lock, plus the list of holds.

local hash, owner, lease, hold, earlier, tag = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[7]
if hold ~= '' then
  load_holds()
  local late = holds.too_late(ARGV[5])
  if late then return late end
end

local function held_back()
  if ARGV[8] ~= '1' or redis.call('exists', KEYS[3]) == 0 then return false end
  load_holds()
  return redis.call('zcount', KEYS[3], holds.clock(), '+inf') > 0
end

local left = redis.call('pttl', hash)
local fresh, count, ids, again = left == -2, 0, '', false
if fresh then
  if earlier ~= '' then return -3 end
  if held_back() then return -5 end
else
  local found = redis.call('hmget', hash, 'mode', owner, owner .. ':write')
  if not found[1] then return foreign() end
  count = tonumber(found[2]) or 0
  if found[1] ~= 'read' and not found[3] then
    load_readers()
    return busy_for(hash, left)
  end
  if count > 0 then
    if hold == '' then
      again = true
    else
      ids = holds.listed(hash, owner)
      -- If all covers of the owner have expired, its earlier holds have ended.
      if covered(tag, owner, count, 1) <= 0 then count, ids = 0, '' end
      again = holds.is_counted(ids, hold)
    end
  end
  if not again then
    if earlier ~= '' and (count == 0 or not holds.has(ids, count, earlier)) then return -3 end
    if ARGV[6] == '1' and (count > 0 or found[3]) then return -6 end
    if count == 0 and not found[3] and held_back() then return -5 end
  end
end

-- If a write is refused, the earlier ones are undone (Undo in `common/holds.lua`).
local n = again and count or count + 1
local own = cover(tag, owner, n)
-- Usually n is 1. It is passed as text, because passing a number to the server costs more.
if n == 1 then n = '1' end
-- The hash must not end before the cover. So its lease is too short even if it equals the new lease: a millisecond may
-- pass before the cover is set. Reading covers may have taken longer, so PTTL is read again.
if count > 0 then left = redis.call('pttl', hash) end
local short = fresh or left <= tonumber(lease)
local no
-- A repeat finds the owner's last cover, perhaps that of another hold, and does not shorten it.
if not again or redis.call('pttl', own) < tonumber(lease) then
  no = refused(redis.pcall('set', own, '1', 'px', lease))
  if no then return no end
end
if fresh then
  no = refused(redis.pcall('hset', hash, 'mode', 'read', owner, n))
elseif not again then
  no = refused(redis.pcall('hset', hash, owner, n))
end
if not no and not again and hold ~= '' then
  no = refused(redis.pcall('hset', hash, owner .. ':holds', ids .. ',' .. hold))
end
-- PEXPIRE always runs (Acknowledgement in `common/holds.lua`).
if not no then
  no = refused(redis.pcall('pexpire', hash, short and lease or left))
end
if no and not again then
  redis.pcall('del', own)
  if fresh then
    redis.pcall('del', hash)
  elseif count > 0 then
    holds.put_back(hash, owner, count, ids)
  else
    redis.pcall('hdel', hash, owner, owner .. ':holds')
  end
end
return no
