-- Changes the number of permits, and wakes waiters if permits become free.
-- KEYS   [1] free count.   [2] leases.
-- ARGV   [1] `new` = sets the free count if there is none; `total` = sets the total (free plus held permits);
--            `add` = adds permits.
--        [2] number of permits; with `add`, a negative number removes permits.
--        [3] last moment in ms of the server's time; 0 = none.
--        [4] publish command.   [5] channel.
-- Reply  `1` done; `0` (only `new`) there is a free count already, nothing was changed.
--        `{-7, at}` too late, nothing was done; at = the server's time in ms.
-- `add` is not idempotent. The caller does not repeat it, and sends a last moment. O(1).
-- Redisson's state. Differences: `add` keeps the expiry of the free count. The message is the free count; it is sent
-- only if permits were added and the free count is positive. Redisson sends the total or the added number.

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
