-- First part of every renewal script: reads the keys and the lease, and checks the last moment. The build puts this
-- file in front of those scripts.
-- KEYS   None if the keys are in several slots of a cluster's server. ARGV then starts with their number and the keys.
-- ARGV   [1] lease in ms. Negative = `exactly`: the lease may also become shorter. 0 = change no lease.
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

-- Returns the lease to write for a key that has `left` ms now (the reply of PTTL), or nil to write none. A lease that
-- is long enough is written again as it is (Acknowledgement in `common/holds.lua`).
local function lease_for(left)
  if lease > 0 and left < lease then return lease_text end
  -- Here the lease is long enough, or ARGV[1] is 0. With 0, a key without a lease gets none.
  if left > 0 then return left end
end
if ARGV[2] ~= '0' then
  load_holds()
  local late = holds.too_late(ARGV[2])
  if late then return late end
end

