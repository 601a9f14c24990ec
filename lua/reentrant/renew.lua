-- Start the lease anew for many locks, each only where its owner still holds it. Never creates anything.
-- KEYS   the locks' hashes
-- ARGV   1 lease in ms   i+1 owner of KEYS[i]
-- Reply  a list, an entry a key: 1 renewed, 0 not held by that owner, text = the server's reason for refusing this one
-- Idempotent. One bad key does not stop the others.

local lease = ARGV[1]
local out = {}
for i = 1, #KEYS do
  local held = redis.pcall('hexists', KEYS[i], ARGV[i + 1])
  if held == 1 then
    held = redis.pcall('pexpire', KEYS[i], lease)
  end
  if type(held) == 'table' then
    held = held.err
  end
  out[i] = held
end
return out
