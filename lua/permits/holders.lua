-- Lists held permits by the end of their lease, earliest first.
-- KEYS   [1] leases.
-- ARGV   [1] the earliest end to list; 0 = from now.   [2] number of permits with that end to skip.
--        [3] maximum number of permits to list.
-- Reply  A list: the server's time in ms, then the id and the end of the lease of each permit.
-- O(log n + ARGV[2] + ARGV[3]): n = held permits.

local now = clock()
local from = math.max(tonumber(ARGV[1]), now + 1)
-- Permits whose lease has ended since the last page are not there to be skipped.
local skip = tonumber(ARGV[1]) == from and ARGV[2] or 0
local found = redis.call('zrangebyscore', KEYS[1], string.format('%.0f', from), '+inf', 'WITHSCORES', 'LIMIT', skip,
  ARGV[3])
return {now, unpack(found)}
