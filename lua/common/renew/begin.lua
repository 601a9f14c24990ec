-- What the scripts that renew begin with, put in front of each of them at build time, so that none forgets its last moment.
-- ARGV   1 lease in ms; negative = `exactly`: to be set even where it is longer now
--        2 last moment in ms of the server's time; 0 = none

-- The same as text, too: a number costs more to hand over.
local lease, lease_text = tonumber(ARGV[1]), ARGV[1]
local exactly = lease < 0
if exactly then lease, lease_text = -lease, string.sub(lease_text, 2) end
if ARGV[2] ~= '0' then
  load_holds()
  local late = holds.too_late(ARGV[2])
  if late then return late end
end

