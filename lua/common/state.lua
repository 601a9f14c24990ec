-- Who holds the lock, and for how long.
-- KEYS   1 the lock's hash
-- Reply  {pttl, owner, count, owner, count, ...}; pttl -2 = free, -1 = held without end
-- Reads only.

local out = {redis.call('pttl', KEYS[1])}
local fields = redis.call('hgetall', KEYS[1])
for i = 1, #fields do
  out[i + 1] = fields[i]
end
return out
