-- Renews the permits of many holds. Renews a hold only if all its permits are held. Never creates a key.
-- KEYS   Two for each hold: free count, leases.
-- ARGV   [1] lease in ms, from now. A longer current lease stays. Negative = sets this lease (without its sign) even if
--            the current lease is longer. 0 = leaves every lease.
--        [2] last moment in ms of the server's time; 0 = none.
--        [i + 2] ids of hold i.
-- Reply  `{-7, at}` too late, nothing was done; at = the server's time in ms.
--        Otherwise a list with one entry for each hold: 1 = renewed; 0 = not all its permits are held; text = the
--        server's error.
-- Idempotent. An error at one hold does not stop the others. O(k log n): k = permits of all holds, n = held permits.

local now, out = clock(), {}
-- A server out of memory refuses ZADD, but not after a script's first write. ZREM removes nothing here, and is allowed.
if KEYS[2] then redis.pcall('zrem', KEYS[2], '') end
for i = 1, #KEYS / 2 do
  local leases, ids, entries, held = KEYS[2 * i], split(ARGV[i + 2]), {}, 1
  for _, id in ipairs(ids) do
    local ends = redis.pcall('zscore', leases, id)
    if error_of(ends) then
      held = error_of(ends)
      break
    end
    ends = tonumber(ends or 0)
    if ends <= now then
      held = 0
      break
    end
    -- A lease that stays becomes 1 ms longer: the server sends replicas only commands that change something
    -- (Acknowledgement in `common/holds.lua`).
    ends = lease > 0 and (exactly or ends < now + lease) and now + lease or ends + 1
    entries[#entries + 1] = ends
    entries[#entries + 1] = id
  end
  if held == 1 then
    local done = redis.pcall('zadd', leases, unpack(entries))
    held = error_of(done) or 1
  end
  out[i] = held
end
return out
