-- Returns the holders in this mode, and the lock's lease.
-- KEYS   [1] the lock's hash.
-- ARGV   [1] mode: read or write.   [2] tag (`covers.lua`).
-- Reply  `{ms, owner, count, owner, count, ..}` without dead readers. ms = the lease: -2 = not held in this mode,
--        -1 = no end.
-- Reads only. O(readers), because the reply names all of them.

local hash, tag = KEYS[1], ARGV[2]
local mode = redis.call('hget', hash, 'mode')
if not mode then return redis.call('exists', hash) == 1 and foreign() or {-2} end
local left, out = redis.call('pttl', hash), {-2}
local fields, longest_cover = redis.call('hgetall', hash), 0
for i = 1, #fields, 2 do
  local field, count = fields[i], fields[i + 1]
  local writer = string.match(field, '^(.*):write$')
  if ARGV[1] == 'write' then
    if writer and mode == 'write' then
      out[1] = left
      out[#out + 1] = writer
      out[#out + 1] = count
    end
  elseif not writer then
    -- The values of the mode and of lists are not numbers.
    local live = covered(tag, field, tonumber(count) or 0, math.huge)
    if live > 0 then
      longest_cover = math.max(longest_cover, live)
      out[#out + 1] = field
      out[#out + 1] = count
    end
  end
end
if longest_cover > 0 then out[1] = left < 0 and longest_cover or math.min(left, longest_cover) end
return out
