-- Take the lock, or take it once more for the same owner.
-- KEYS   1 the lock's hash
-- ARGV   1 owner
--        2 lease in ms; coming in again, one that is longer now is left alone
--        3 hold count the owner is to have afterwards; 0 = unknown, count one up; -1 = unknown, and it must
--          hold nothing yet
-- Reply  nil  held; the count stands and the lease runs from now
--        n    busy: the lease has n ms left; -1 = it has no end
--        -6   the owner holds it already (only for -1)
--        -3   the owner wanted to come in again but holds nothing any more, and the lock is free
-- Idempotent where ARGV 3 is above 0: a repeat finds the count it wants and at most starts the lease anew.
-- Same state as Redisson's RLock (protocol 4.3).

local want = tonumber(ARGV[3])
local fresh = redis.call('exists', KEYS[1]) == 0
if fresh then
  if want > 1 then return -3 end
elseif redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
  return redis.call('pttl', KEYS[1])
elseif want < 0 then
  return -6
end

local added = true
if fresh or want <= 0 then
  redis.call('hincrby', KEYS[1], ARGV[1], 1)
else
  local count = tonumber(redis.call('hget', KEYS[1], ARGV[1]))
  added = count ~= want
  if added then redis.call('hset', KEYS[1], ARGV[1], want) end
end

-- A script is not rolled back. A lease that cannot be set (refused by the access list, say) must not leave a lock
-- that never ends.
local leased
if fresh or redis.call('pttl', KEYS[1]) < tonumber(ARGV[2]) then
  leased = redis.pcall('pexpire', KEYS[1], ARGV[2])
end
if type(leased) == 'table' and leased.err then
  if fresh then
    redis.call('del', KEYS[1])
  elseif added then
    redis.call('hincrby', KEYS[1], ARGV[1], -1)
  end
  return leased
end
return nil
