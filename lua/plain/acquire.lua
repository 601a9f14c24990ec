-- Acquires the lock if it is free; otherwise says for how long it is held. Used by waiters, after an acquire whose
-- outcome is unknown, and for owners that others may use. All other acquires use `set.lua`.
-- KEYS   [1] the lock.
-- ARGV   [1] value of this acquire (`values.lua`).
--        [2] lease in ms.
--        [3] last moment in ms of the server's time; 0 = none.
--        [4].. the prefixes of the owner's values, one per form; none = the owner has no other value.
-- Reply  `OK`      held; the lease runs from now, but a repeat keeps a longer one.
--        `{n, 1}`  busy: the lease has n ms left, -1 = no end. A message probably announces the release (`is_told`).
--        `{n, 0}`  busy, and probably no message announces the release.
--        `-6`      the owner holds the lock already, with another value.
--        `{-7, at}` too late, nothing was done; at = the server's time in ms.
-- Idempotent: a repeat finds its value, and at most restarts the lease. O(1).

local value, last = ARGV[1], ARGV[3] or '0'
if last ~= '0' then
  load_holds()
  local late = holds.too_late(last)
  if late then return late end
end

local taken = redis.call('set', KEYS[1], value, 'NX', 'PX', ARGV[2])
if taken then return taken end
local found, left = redis.call('get', KEYS[1]) or '', redis.call('pttl', KEYS[1])
if found == value then
  -- PEXPIRE always runs (Acknowledgement in `common/holds.lua`).
  redis.call('pexpire', KEYS[1], left < tonumber(ARGV[2]) and ARGV[2] or left)
  return redis.status_reply('OK')
end
if is_of(found, ARGV, 4) then return -6 end
return {left, is_told(found) and 1 or 0}
