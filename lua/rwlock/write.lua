-- Take the lock for writing, or once more for the same owner.
-- KEYS   1 the lock's hash   2 the writers of ours that wait
-- ARGV   1 owner
--        2 lease in ms; coming in again, one that is longer now is left alone
--        3 hold count the owner is to have afterwards; 0 = unknown, count one up; -1 = unknown, and it must
--          hold nothing yet
--        4 tag
--        5 0, or for how many ms from now a writer that has to wait holds back readers that come
-- Reply  nil  held; the count stands and the lease runs from now
--        n    busy: n ms are left of the lease of the writer, or of the reader whose lease is the longest; -1 = no end
--        -3   the owner wanted to come in again but holds nothing any more
--        -6   the owner holds it for reading: it would wait for itself; or for writing (only for count -1)
-- Idempotent where ARGV 3 is above 0: a repeat finds the count it wants and at most starts the lease anew.
-- Same state as Redisson's write lock (protocol 10.2), but: coming in again takes the longer of both leases, not their
-- sum; where every reader is dead nobody is waited for.

local hash, owner, want, tag = KEYS[1], ARGV[1], tonumber(ARGV[3]), ARGV[4]
local field, lease, announce = owner .. ':write', ARGV[2], tonumber(ARGV[5])

local function busy(left)
  if announce > 0 then
    local now = redis.call('time')
    -- Where that is refused, readers are preferred. No mark without an end.
    local mark = redis.pcall('zadd', KEYS[2], now[1] * 1000 + math.floor(now[2] / 1000) + announce, owner)
    if not refused(mark) and redis.call('pttl', KEYS[2]) < announce
      and refused(redis.pcall('pexpire', KEYS[2], announce)) then
      redis.pcall('del', KEYS[2])
    end
  end
  return left
end

local fresh, count = redis.call('exists', hash) == 0, 0
if not fresh then
  local found = redis.call('hmget', hash, 'mode', field, owner)
  count = tonumber(found[2]) or 0
  if not found[1] then
    return foreign()
  elseif found[1] == 'read' then
    if found[3] and covered(tag, owner, tonumber(found[3]) or 0, 1) > 0 then return -6 end
    local left = redis.call('pttl', hash)
    local live = longest(hash, tag, left < 0 and math.huge or math.max(left, 1))
    if live > 0 then return busy(left < 0 and live or math.min(left, live)) end
    if want > 1 then return -3 end
    redis.call('del', hash)
    fresh, count = true, 0
  elseif count == 0 then
    return busy(redis.call('pttl', hash))
  elseif want < 0 then
    return -6
  end
elseif want > 1 then
  return -3
end

local n = want > 0 and ARGV[3] or tostring(count + 1)
local short = fresh or redis.call('pttl', hash) < tonumber(lease)
if fresh then
  redis.call('hset', hash, 'mode', 'write', field, n)
elseif tonumber(n) ~= count then
  redis.call('hset', hash, field, n)
end

-- A script is not rolled back. A lease that cannot be set (refused by the access list, say) must not leave a lock
-- that never ends.
local no
if short then
  no = refused(redis.pcall('pexpire', hash, lease))
end
if no then
  if fresh then
    redis.call('del', hash)
  else
    redis.call('hset', hash, field, count)
  end
  return no
end
-- A mark that stays runs out.
if announce > 0 then redis.pcall('zrem', KEYS[2], owner) end
return nil
