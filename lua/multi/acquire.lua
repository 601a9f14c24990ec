-- Take all of many locks, or none.
-- KEYS   the locks' hashes
-- ARGV   1 owner, which holds none of them but by an earlier copy of this call
--        2 lease in ms
-- Reply  nil     held, all of them, once each; their leases run from now
--        {i, n}  nothing was taken: the lock KEYS[i], the first of those that somebody else holds, is busy for n ms; -1 =
--                without end; text = it is not a lock
-- Idempotent: what its owner has already is not counted again, nor is its lease made shorter. Each lock is left as one
-- taken alone. O(locks).

local mine = {}
-- Mostly none of them is there, which one call tells.
local some = redis.call('exists', unpack(KEYS)) > 0
for i = 1, some and #KEYS or 0 do
  if redis.call('exists', KEYS[i]) == 1 then
    mine[i] = redis.pcall('hexists', KEYS[i], ARGV[1])
    if type(mine[i]) == 'table' then return {i, mine[i].err} end
    if mine[i] == 0 then return {i, redis.call('pttl', KEYS[i])} end
  end
end
for i = 1, #KEYS do
  if not mine[i] then redis.call('hset', KEYS[i], ARGV[1], '1') end
  -- A script is not rolled back. A lease that cannot be set must not leave a lock that never ends.
  -- Written also where a longer one stays: what replicas acknowledge is this connection's last write.
  local left = mine[i] and redis.call('pttl', KEYS[i]) or -1
  local leased = redis.pcall('pexpire', KEYS[i], left < tonumber(ARGV[2]) and ARGV[2] or left)
  if type(leased) == 'table' and leased.err then
    for taken = 1, i do
      if not mine[taken] then redis.call('del', KEYS[taken]) end
    end
    return leased
  end
end
return nil
