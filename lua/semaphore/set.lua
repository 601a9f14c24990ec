-- Changes the number of free permits, and wakes waiters.
-- KEYS   [1] the number of free permits.
-- ARGV   [1] `new` = sets the number if there is none; `value` = sets the number; `add` = adds permits; `drain` = takes
--            all free permits; `delete` = deletes the number.
--        [2] permits; negative with `add` to remove permits.
--        [3] time to live of a new number in ms; 0 = no end.
--        [4] last moment in ms of the server's time. 0 = none.
--        [5] publish command.   [6] channel.
-- Reply  `1` done; `0` nothing was changed (`new`, `delete`). With `drain`: `{n}`, the number before.
--        `{-7, at}` too late, nothing was done; at = the server's time in ms.
-- Idempotent except `add` and `drain`: the caller limits their time. O(1). Redisson's state. Differences: `add` and
-- `drain` keep the expiry of the number, and a number that is not positive is not announced.

local now = redis.call('time')
now = now[1] * 1000 + math.floor(now[2] / 1000)
if ARGV[4] ~= '0' and now > tonumber(ARGV[4]) then return {-7, now} end
local key, what, n = KEYS[1], ARGV[1], tonumber(ARGV[2])
local text = redis.call('get', key)
local free = text and tonumber(text) or 0
-- Text that is not a number stops the script.
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
