-- Come in as a reader: beside other readers, or under the same owner's own write hold.
-- KEYS   1 the lock's hash   2 the writers of ours that wait
-- ARGV   1 owner
--        2 lease in ms of this hold
--        3 hold count the owner is to have afterwards; 0 = unknown, count one up; -1 = unknown, and it must
--          hold nothing yet
--        4 tag
--        5 1 = gives way to writers that wait, unless the owner is in already
-- Reply  nil  held; the count stands and this hold's lease runs from now
--        n    busy: a writer's lease has n ms left; -1 = it has no end
--        -3   the owner wanted to come in again but holds nothing any more
--        -5   held back: a writer waits
--        -6   the owner holds one of the halves already (only for count -1)
-- Idempotent where ARGV 3 is above 0: a repeat finds the count it wants and at most starts the lease anew.
-- Same state as Redisson's read lock (protocol 10.1).

local hash, owner, lease, want, tag = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]

local function held_back()
  if ARGV[5] ~= '1' or redis.call('exists', KEYS[2]) == 0 then return false end
  local now = redis.call('time')
  return redis.call('zcount', KEYS[2], now[1] * 1000 + math.floor(now[2] / 1000), '+inf') > 0
end

local fresh, count = redis.call('exists', hash) == 0, 0
if fresh then
  if want > 1 then return -3 end
  if held_back() then return -5 end
else
  local found = redis.call('hmget', hash, 'mode', owner, owner .. ':write')
  if not found[1] then return foreign() end
  count = tonumber(found[2]) or 0
  if found[1] ~= 'read' and not found[3] then return redis.call('pttl', hash) end
  -- Holds whose leases are over do not count.
  if count > 0 and want ~= 1 and covered(tag, owner, count, 1) <= 0 then count = 0 end
  if want > 1 and count == 0 then return -3 end
  if want < 0 and (count > 0 or found[3]) then return -6 end
  if count == 0 and not found[3] and held_back() then return -5 end
end

-- A script is not rolled back: what may be refused (by the access list, say) comes first, or is undone.
local n = want > 0 and ARGV[3] or tostring(count + 1)
local own = cover(tag, owner, n)
-- As long is too short: a millisecond may go by before the cover is set, and the hash must not end before it.
local short = fresh or redis.call('pttl', hash) <= tonumber(lease)
local no = refused(redis.pcall('set', own, '1', 'px', lease))
if no then return no end
if fresh then
  no = refused(redis.pcall('hset', hash, 'mode', 'read', owner, n))
elseif tonumber(n) ~= count then
  no = refused(redis.pcall('hset', hash, owner, n))
end
if short and not no then
  no = refused(redis.pcall('pexpire', hash, lease))
end
if no then
  redis.pcall('del', own)
  if fresh then
    redis.pcall('del', hash)
  elseif count > 0 then
    redis.pcall('hset', hash, owner, count)
  else
    redis.pcall('hdel', hash, owner)
  end
  return no
end
return nil
