-- Sets the lease of permits, all or none. The lease may become longer or shorter.
-- KEYS   [1] free count.   [2] leases.
-- ARGV   [1] ids.   [2] lease in ms, from now.
--        [3] last moment in ms of the server's time; 0 = none.
-- Reply  `1` done; `0` not all of these permits are held, nothing was changed.
--        `{-7, at}` too late, nothing was done; at = the server's time in ms.
-- A late copy could shorten a lease that was set later, so the caller sends a last moment.
-- O(k log n): k = ids, n = held permits.

local leases, now = KEYS[2], clock()
if ARGV[3] ~= '0' and now > tonumber(ARGV[3]) then return {-7, now} end
local entries, till = {}, now + tonumber(ARGV[2])
for _, id in ipairs(split(ARGV[1])) do
  local ends = redis.call('zscore', leases, id)
  if not ends or tonumber(ends) <= now then return 0 end
  entries[#entries + 1] = till
  entries[#entries + 1] = id
end
redis.call('zadd', leases, unpack(entries))
return 1
