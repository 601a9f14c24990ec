-- Changes the number of permits, and wakes waiters if permits become free.
-- KEYS   [1] count.   [2] leases.
-- ARGV   [1] `new` = sets the number if there is none; `total` = sets the number of all permits, held ones included;
--            `add` = adds permits.
--        [2] permits; negative with `add` to remove permits.
--        [3] last moment in ms of the server's time; 0 = none.
--        [4] publish command.   [5] channel.
-- Reply  `1` done; `0` nothing was changed, because there is a number already (`new`).
--        `{-7, at}` too late, nothing was done; at = the server's time in ms.
-- Not idempotent with `add`: the caller limits its time. O(1) in the number of permits, or O(log n) with `total`.
-- Redisson's state. Differences: `add` keeps the expiry of the count. The message is the number of free permits, and none
-- is sent if it is not positive, or if no permits were added. Redisson's message is the total, or the added number.

local now = clock()
if ARGV[3] ~= '0' and now > tonumber(ARGV[3]) then return {-7, now} end
local count, n = KEYS[1], tonumber(ARGV[2])
local free, more = read_count(count), n
if ARGV[1] == 'new' then
  if redis.call('exists', count) == 1 then return 0 end
  redis.call('set', count, ARGV[2])
  free = n
else
  if ARGV[1] == 'total' then more = n - free - redis.call('zcard', KEYS[2]) end
  free = redis.call('incrby', count, more)
end
if more > 0 and free > 0 then redis.pcall(ARGV[4], ARGV[5], free) end
return 1
