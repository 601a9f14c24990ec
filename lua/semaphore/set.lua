-- Changes the free count, and wakes waiters.
-- KEYS   [1] free count.
-- ARGV   [1] `new` = sets the free count if there is none; `value` = overwrites it; `add` = adds permits;
--            `drain` = takes all free permits; `delete` = deletes the free count.
--        [2] number of permits; with `add`, a negative number removes permits.
--        [3] time to live in ms of a free count that is set; 0 = no end.
--        [4] last moment in ms of the server's time; 0 = none.
--        [5] publish command.   [6] channel.
-- Reply  `1` done; `0` nothing was changed: there is a free count (`new`), or there was none (`delete`).
--        `{n}` (only `drain`) n = the free count before.
--        `{-7, at}` too late, nothing was done; at = the server's time in ms.
-- Idempotent, except `add` and `drain`. The caller does not repeat these, and sends a last moment. O(1).
-- Redisson's state. Differences: `add` and `drain` keep the expiry of the free count. A free count below 1 is not sent.

local now = redis.call('time')
now = now[1] * 1000 + math.floor(now[2] / 1000)
if ARGV[4] ~= '0' and now > tonumber(ARGV[4]) then return {-7, now} end
local key, what, n = KEYS[1], ARGV[1], tonumber(ARGV[2])
local text = redis.call('get', key)
local free = text and tonumber(text) or 0
-- Text that is not a number stops the script, because INCRBY fails.
if text and not tonumber(text) then redis.call('incrby', key, 0) end
if what == 'delete' then return redis.call('del', key) end
if what == 'drain' then
  if free ~= 0 then redis.call('decrby', key, free) end
  return {free}
end
if what == 'new' and text then return 0 end
if what == 'add' then
  free = redis.call('incrby', key, n)
else
  free = n
  if ARGV[3] == '0' then
    redis.call('set', key, ARGV[2])
  else
    redis.call('set', key, ARGV[2], 'px', ARGV[3])
  end
end
if n > 0 and free > 0 then redis.pcall(ARGV[5], ARGV[6], free) end
return 1
