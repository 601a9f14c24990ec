-- Come in as a reader: beside other readers, or under the same owner's own write hold.
-- KEYS   1 the lock's hash   2 the owner's first cover   3 the writers of ours that wait
-- ARGV   1 owner
--        2 lease in ms of this hold
--        3 hold (`common/holds.lua`): '' or an id
--        4 a hold that the owner must have still, '' = none
--        5 last moment in ms of the server's time; 0 = none
--        6 1 = the owner must hold neither half
--        7 tag
--        8 1 = gives way to writers that wait, unless the owner is in already
-- Reply  nil       held; the hold is counted and its lease runs from now
--        n         busy: a writer's lease has n ms left; -1 = it has no end
--        -3        the owner has not got the hold of ARGV 4 any more
--        -5        held back: a writer waits
--        -6        the owner holds one of the halves already (only for ARGV 6)
--        {-7, at}  too late, nothing was done; at = the server's time in ms
-- Idempotent: a repeat finds its hold counted and at most starts the lease anew. O(1); O(holds of this owner) for one that was
-- given.
-- Same state as Redisson's read lock, but for the list of holds.

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
  if found[1] ~= 'read' and not found[3] then return left end
  if count > 0 then
    if hold == '' then
      again = true
    else
      ids = holds.listed(hash, owner)
      -- Holds whose leases are over do not count.
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

-- A script is not rolled back: what may be refused (by the access list, say) comes first, or is undone.
local n = again and count or count + 1
local own = cover(tag, owner, n)
-- A number costs more to hand over than a text.
if n == 1 then n = '1' end
-- As long is too short: a millisecond may go by before the cover is set, and the hash must not end before it. More may have gone
-- by where covers were asked.
if count > 0 then left = redis.call('pttl', hash) end
local short = fresh or left <= tonumber(lease)
local no
-- A repeat cuts no hold of this owner short.
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
-- Written also where a longer one stays: what replicas acknowledge is this connection's last write.
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
