-- Take the lock if nobody has it, and say for how long it is taken: for those who wait, or ask again in doubt, or ask as an
-- owner that others may act as.
-- KEYS   1 the lock
-- ARGV   1 value   2 lease in ms
--        3 last moment in ms of the server's time; 0 = none
--        4 ... what all values of the owner begin with, in each form; none: it will have no other
-- Reply  OK        held; the lease runs from now, but for a repeat that finds a longer one
--        {n, 1}    busy: the lease has n ms left, -1 = it has no end; its release will be announced
--        {n, 0}    busy: its release will not be announced
--        -6        the owner holds it already
--        {-7, at}  too late, nothing was done; at = the server's time in ms
-- Idempotent: a repeat finds its value, and at most starts the lease anew. O(1).

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
  -- Written also where a longer lease stays: what replicas acknowledge is this connection's last write.
  redis.call('pexpire', KEYS[1], left < tonumber(ARGV[2]) and ARGV[2] or left)
  return redis.status_reply('OK')
end
if is_of(found, ARGV, 4) then return -6 end
return {left, is_told(found) and 1 or 0}
