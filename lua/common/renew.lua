-- Make the lease last so long from now for many locks, each only where its owner still holds it. Never creates anything.
-- KEYS   the locks' hashes
-- ARGV   1 lease in ms: one that is longer now is left alone; negative = set to so many ms even then
--        i+1 owner of KEYS[i]
-- Reply  a list, an entry a key: 1 renewed, 0 not held by that owner, text = the server's reason for refusing this one
-- Idempotent. One bad key does not stop the others.

local lease = tonumber(ARGV[1])
local exactly = lease < 0
if exactly then lease = -lease end
local out = {}
for i = 1, #KEYS do
  local held = redis.pcall('hexists', KEYS[i], ARGV[i + 1])
  if held == 1 then
    -- The same owner may have been promised a longer lease.
    local left = exactly and -1 or redis.pcall('pttl', KEYS[i])
    if type(left) == 'table' then
      held = left
    elseif left < lease then
      held = redis.pcall('pexpire', KEYS[i], lease)
    end
  end
  if type(held) == 'table' then
    held = held.err
  end
  out[i] = held
end
return out
