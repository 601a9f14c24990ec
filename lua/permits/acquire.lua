-- Takes permits, all or none.
-- KEYS   [1] count.   [2] leases.
-- ARGV   [1] ids of the hold.   [2] lease in ms.
--        [3] last moment in ms of the server's time; 0 = none.
--        [4] publish command.   [5] channel.
-- Reply  `nil`      held.
--        `ms`       busy: in ms enough permits have expired, if nobody releases or takes any.
--        `-1`       busy without an end.
--        `{-7, at}` too late, nothing was done; at = the server's time in ms.
-- Idempotent: a repeat restarts the lease. O(permits of the hold + expired permits), in log of all held permits.
-- Redisson's state and message. Differences: this script uses the server's time, returns more expired permits, and
-- announces only the permits that are left.

local count, leases, now = KEYS[1], KEYS[2], clock()
if ARGV[3] ~= '0' and now > tonumber(ARGV[3]) then return {-7, now} end
local ids, till = split(ARGV[1]), now + tonumber(ARGV[2])
local free, reclaimed = reclaim(count, leases, now)

local missing = #ids
if free < missing then
  -- For a repeat, the permits of this hold are not missing.
  for _, id in ipairs(ids) do
    if redis.call('zscore', leases, id) then missing = missing - 1 end
  end
end
if free < missing then
  if reclaimed > 0 and free > 0 then redis.pcall(ARGV[4], ARGV[5], free) end
  -- The permit whose end makes this request possible.
  local last = redis.call('zrange', leases, missing - free - 1, missing - free - 1, 'WITHSCORES')
  local ends = tonumber(last[2]) or NO_END
  return ends < NO_END and math.max(ends - now, 0) or -1
end

local entries = {}
for _, id in ipairs(ids) do
  entries[#entries + 1] = till
  entries[#entries + 1] = id
end
local added = redis.call('zadd', leases, unpack(entries))
if added > 0 then
  free = redis.pcall('decrby', count, added)
  if error_of(free) then
    redis.pcall('zrem', leases, unpack(ids))
    return free
  end
end
local ttl = redis.call('pttl', count)
if ttl > 0 then redis.call('pexpire', leases, ttl) end
if reclaimed > 0 and free > 0 then redis.pcall(ARGV[4], ARGV[5], free) end
return nil
