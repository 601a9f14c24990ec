end

-- KEYS   1 the lock's hash   2 the counter of its sections
-- ARGV   as of `reentrant/acquire.lua`
--        7 1 = a new number is no smaller than the server's time in ms
-- Reply  {number}  held; the section has this number: a new one, or for an owner that comes in again the one it has
--        else      as of `reentrant/acquire.lua`, nothing was counted
-- Idempotent. Numbers only grow, and some may be left out.
-- With ARGV 7, numbers also grow after the counter was lost, unless the server's clock was set back. Redisson's `INCR` continues
-- from there.
-- Same state as Redisson's fenced lock, but: coming in again is not counted, and a counter that was given
-- an end (Redisson's multi lock does so) has none any more.

-- Before the counter is touched.
if (ARGV[5] or '0') ~= '0' then
  load_holds()
  local late = holds.too_late(ARGV[5])
  if late then return late end
end
-- Called before the lock is taken: a number without a section does no harm, a section without a number would.
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
