end

-- KEYS   [1] the lock's hash.   [2] the lock's counter.
-- ARGV   as in `reentrant/acquire.lua`, and
--        [7] 1 = a new number is at least the server's time in ms.
-- Reply  `{number}` held. A new section gets a new number; re-entry returns the number that the section has.
--        Any other reply is as in `reentrant/acquire.lua`; the hold is not counted.
-- Idempotent. Numbers grow as long as the counter exists; some may be skipped, because the counter is raised first.
-- With ARGV[7], numbers grow even after the counter was lost, unless the server's clock was set back. Redisson's `INCR`
-- continues from the new number. Same state as Redisson's fenced lock, with two differences: re-entry does not raise
-- the counter, and an expiry on the counter (Redisson's multi lock sets one) is removed.

-- The last moment is checked before the counter changes.
if (ARGV[5] or '0') ~= '0' then
  load_holds()
  local late = holds.too_late(ARGV[5])
  if late then return late end
end
-- Creates a new number. Called before the lock is acquired: a number without a section is harmless, a section without a
-- number is not.
local function count()
  local number = redis.call('incr', KEYS[2])
  if ARGV[7] == '1' then
    local now = redis.call('time')
    local at = now[1] * 1000 + math.floor(now[2] / 1000)
    if number < at then
      redis.call('set', KEYS[2], at)
      return at
    end
  end
  return number
end
local number
local left = redis.call('pttl', KEYS[1])
if left == -2 then
  if (ARGV[4] or '') == '' then
    number = count()
    redis.pcall('persist', KEYS[2])
  end
elseif redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
  return left
else
  number = redis.call('get', KEYS[2]) or count()
end
local other = take(KEYS, ARGV)
if other then return other end
return {number}
