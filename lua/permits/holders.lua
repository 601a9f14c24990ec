-- Lists held permits, those that end first in front.
-- KEYS   [1] leases.
-- ARGV   [1] how many permits to skip.   [2] the most permits to list.
-- Reply  A list: the server's time in ms, the number of permits in the set, then id and end of each permit whose lease has
--        not ended.
-- O(log n + ARGV[2]).

local now = clock()
local found = redis.call('zrange', KEYS[1], ARGV[1], ARGV[1] + ARGV[2] - 1, 'WITHSCORES')
local out = {now, redis.call('zcard', KEYS[1])}
for at = 1, #found, 2 do
  if tonumber(found[at + 1]) > now then
    out[#out + 1] = found[at]
    out[#out + 1] = found[at + 1]
  end
end
return out
