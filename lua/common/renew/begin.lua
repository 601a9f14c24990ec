-- Shared head of the renewal scripts. The build puts it in front of each of them, so that all of them check the last moment.
-- KEYS   None if the keys are in several slots of a cluster's server. ARGV then starts with their number and the keys.
-- ARGV   [1] lease in ms. Negative = `exactly`: the lease may also become shorter. 0 = change no lease, only
--            confirm the holds.
--        [2] last moment in ms of the server's time; 0 = none.

local KEYS, ARGV = KEYS, ARGV
if #KEYS == 0 then
  local count, keys, args = tonumber(ARGV[1]), {}, {}
  for i = 1, count do keys[i] = ARGV[i + 1] end
  for i = count + 2, #ARGV do args[i - count - 1] = ARGV[i] end
  KEYS, ARGV = keys, args
end

-- `lease_text`: the lease as text, because passing a number to the server costs more.
local lease, lease_text = tonumber(ARGV[1]), ARGV[1]
local exactly = lease < 0
if exactly then lease, lease_text = -lease, string.sub(lease_text, 2) end

-- Returns the lease to write for a key that has `left` ms now (the reply of PTTL), or nil to write none. A lease that is
-- long enough is written again as it is: replicas acknowledge this connection's last write, so a write is needed.
local function lease_for(left)
  if lease > 0 and left < lease then return lease_text end
  -- A confirmation adds no lease to a key that has none, and deletes no key.
  if left > 0 then return left end
end
if ARGV[2] ~= '0' then
  load_holds()
  local late = holds.too_late(ARGV[2])
  if late then return late end
end

