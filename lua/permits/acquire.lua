-- Takes permits, all or none.
-- KEYS   [1] free count.   [2] leases.
-- ARGV   [1] ids of the hold.   [2] lease in ms.
--        [3] last moment in ms of the server's time; 0 = none.
--        [4] publish command.   [5] channel.
-- Reply  `nil`      the permits are held.
--        `ms`       busy; enough leases end in `ms`.
--        `-1`       busy; too few leases have an end.
--        `{-7, at}` too late, nothing was done; at = the server's time in ms.
-- Idempotent: a repeat restarts the lease, but never shortens it.
-- O(k log n): k = permits of the hold and expired permits, n = held permits.
-- Redisson's state and message. Differences: this script uses the server's time and returns more expired permits. Its
-- message is the free count after the acquire.

local count, leases, now = KEYS[1], KEYS[2], clock()
if ARGV[3] ~= '0' and now > tonumber(ARGV[3]) then return {-7, now} end
local ids, till = split(ARGV[1]), now + tonumber(ARGV[2])
local before, expired = read_count(count), list_expired(leases, now)
local free, missing = before + #expired, #ids

if free < missing then
  -- A repeat already holds some of these permits.
  for _, id in ipairs(ids) do
    local ends = redis.call('zscore', leases, id)
    if ends and tonumber(ends) > now then missing = missing - 1 end
  end
end
if free < missing then
  -- Index of the permit whose lease must end before this request can succeed. Expired permits have lower indexes.
  local at = #expired + missing - free - 1
  local last = redis.call('zrange', leases, at, at, 'WITHSCORES')
  if #expired > 0 then
    redis.call('zrem', leases, unpack(expired))
    redis.call('incrby', count, #expired)
    if free > 0 then redis.pcall(ARGV[4], ARGV[5], free) end
  end
  local ends = tonumber(last[2]) or NO_END
  return ends < NO_END and math.max(ends - now, 0) or -1
end

local entries, mine, old = {}, {}, {}
for _, id in ipairs(ids) do
  entries[#entries + 1] = till
  entries[#entries + 1] = id
  mine[id] = true
end
for _, id in ipairs(expired) do
  if not mine[id] then old[#old + 1] = id end
end
-- ZADD first: while a slot moves, the server refuses to recreate a sorted set that ZREM emptied.
local added = redis.call('zadd', leases, 'NX', unpack(entries))
if added < #ids then
  -- A repeat. It sets only the leases that end earlier: another command may have extended the others.
  for _, id in ipairs(ids) do
    if tonumber(redis.call('zscore', leases, id)) < till then redis.call('zadd', leases, till, id) end
  end
end
local change = #old - added
if added > 0 or #expired > 0 then
  local done = redis.pcall('incrby', count, change)
  if error_of(done) then
    if added > 0 then redis.pcall('zrem', leases, unpack(ids)) end
    return done
  end
end
if #old > 0 and error_of(redis.pcall('zrem', leases, unpack(old))) then
  -- ZREM failed: the expired permits stay in the set. Take them off the free count again.
  redis.pcall('incrby', count, -#old)
end
local ttl = redis.call('pttl', count)
if ttl > 0 then redis.call('pexpire', leases, ttl) end
free = before + change
if #expired > 0 and free > 0 then redis.pcall(ARGV[4], ARGV[5], free) end
return nil
