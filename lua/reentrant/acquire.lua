-- Acquires the lock, or re-enters it as the same owner.
-- KEYS   [1] the lock's hash.
-- ARGV   Trailing arguments that are '' or 0 may be omitted.
--        [1] owner.
--        [2] lease in ms; on re-entry a longer current lease stays.
--        [3] hold (`common/holds.lua`): '' or an id.
--        [4] a hold that the owner must still have; '' = none.
--        [5] last moment in ms of the server's time; 0 = none; read only if [3] is an id.
--        [6] 1 = the owner must have no other hold; read only if [3] is an id.
-- Reply  `nil`     held; the hold is counted, and the lease runs from now.
--        `n`       busy: the lease has n ms left; -1 = no end.
--        `-6`      the owner holds the lock already (only with ARGV[6]).
--        `-3`      the owner no longer has the hold of ARGV[4].
--        `{-7, at}` too late, nothing was done; at = the server's time in ms.
-- Idempotent: a repeat finds its hold counted, and at most restarts the lease. O(holds of this owner). Same state as
-- Redisson's RLock, plus the list of holds.

local owner, lease, hold, earlier = ARGV[1], ARGV[2], ARGV[3] or '', ARGV[4] or ''
if hold ~= '' then
  load_holds()
  local late = holds.too_late(ARGV[5] or '0')
  if late then return late end
end

local left = redis.call('pttl', KEYS[1])
local fresh = left == -2
-- Counts are text, because passing a number to the server costs more.
local count, ids
if fresh then
  if earlier ~= '' then return -3 end
  if hold == '' then
    redis.call('hset', KEYS[1], owner, '1')
  else
    redis.call('hset', KEYS[1], owner, '1', owner .. ':holds', ',' .. hold)
  end
elseif hold == '' then
  if redis.call('hexists', KEYS[1], owner) == 0 then return left end
else
  local found = redis.call('hmget', KEYS[1], owner, owner .. ':holds')
  if not found[1] then return left end
  count, ids = tonumber(found[1]) or 0, found[2] or ''
  if holds.is_counted(ids, hold) then
    count = nil
  else
    if ARGV[6] == '1' then return -6 end
    if earlier ~= '' and not holds.has(ids, count, earlier) then return -3 end
    holds.add(KEYS[1], owner, count, ids, hold)
  end
end

-- PEXPIRE always runs. If it is refused, the hold is removed (Acknowledgement and Undo in `common/holds.lua`).
if not fresh and left >= tonumber(lease) then lease = left end
local leased = redis.pcall('pexpire', KEYS[1], lease)
if type(leased) == 'table' and leased.err then
  if fresh then
    redis.call('del', KEYS[1])
  elseif count then
    holds.put_back(KEYS[1], owner, count, ids)
  end
  return leased
end
return nil
