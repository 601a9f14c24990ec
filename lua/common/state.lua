-- Returns the lock's lease, and its owners with their counts.
-- KEYS   [1] the lock's hash.
-- Reply  `{pttl, owner, count, owner, count, ..}`; pttl -2 = free, -1 = held without an end.
-- Reads only.

local out = {redis.call('pttl', KEYS[1])}
local fields = redis.call('hgetall', KEYS[1])
for i = 1, #fields, 2 do
  -- Lists of holds are not owners.
  if string.sub(fields[i], -6) ~= ':holds' then
    out[#out + 1] = fields[i]
    out[#out + 1] = fields[i + 1]
  end
end
return out
