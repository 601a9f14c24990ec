-- What the scripts that renew begin with, put in front of each of them at build time, so that none forgets its last moment.
-- KEYS   none = for keys in several slots of a cluster's server: how many there are, and they, stand before all else in ARGV
-- ARGV   1 lease in ms; negative = `exactly`: to be set even where it is longer now; 0 = no lease changes: the holds are
--          confirmed only
--        2 last moment in ms of the server's time; 0 = none

local KEYS, ARGV = KEYS, ARGV
if #KEYS == 0 then
  local count, keys, args = tonumber(ARGV[1]), {}, {}
  for i = 1, count do keys[i] = ARGV[i + 1] end
  for i = count + 2, #ARGV do args[i - count - 1] = ARGV[i] end
  KEYS, ARGV = keys, args
end

-- The same as text, too: a number costs more to hand over.
local lease, lease_text = tonumber(ARGV[1]), ARGV[1]
local exactly = lease < 0
if exactly then lease, lease_text = -lease, string.sub(lease_text, 2) end

-- The lease to write for a key that has `left` ms now, as PTTL gives it; nil = none is written. A lease that is long enough is
-- written too: what replicas acknowledge is this connection's last write.
local function lease_for(left)
  if lease > 0 and left < lease then return lease_text end
  -- A confirmation gives no lease to a key that has none, and ends no key.
  if left > 0 then return left end
end
if ARGV[2] ~= '0' then
  load_holds()
  local late = holds.too_late(ARGV[2])
  if late then return late end
end

