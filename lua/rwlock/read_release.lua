-- Give back one of the owner's holds for reading; the last live reader frees the lock and wakes a waiter of every client.
-- KEYS   1 the lock's hash   2.. the owner's first covers, as far as the caller knows of its holds
-- ARGV   1 owner
--        2 hold (`common/holds.lua`)
--        3 the lease, in full, of what is left
--        4 the holds that the caller has left, one `,id` each; '' = unknown
--        5 last moment in ms of the server's time, of giving back any hold, or of making the lease shorter; 0 = none
--        6 tag
--        7 for how many ms what the caller has left must be covered at least, or else for ARGV 3; 0 = as it is
--        8 publish command   9 channel
-- Reply  n         n holds are left
--        {-1}      none of this owner's is left; others hold it, or this owner for writing
--        -n        free; n clients were told (on this node)
--        {0, text} free, but nobody could be told: the server's reason
--        {-8, id}  nothing was done: for hold '*', which one it is to be, by its id. One that is not listed is given back at once
--        {-7, at}  too late, nothing was done; at = the server's time in ms
--        nil       the lock is free and was not ours
--        text      held by this other owner, or by this one for writing
--        {-2, n}   the hold is not there, but n others of this owner for reading are
-- Idempotent: a repeat answers nil, an owner or {-2, n}; the caller knows that it repeats. But for hold '*', until its last
-- moment.
-- O(holds of this owner), and O(1) for the other readers: a sample of them, or all of up to SEARCH. Only where hardly any of
-- them lives O(readers), once for each of ours that died.
-- Same state and message as Redisson's read lock, without its latch key, but: under the owner's own write
-- hold the hash's lease stays, for it is the writer's. Otherwise it becomes what the readers that are left are covered for,
-- and if that is sooner by a second or more, a waiter of every client is woken. Of many readers it may stay longer
-- (`lease_needed`). In a command of many steps what is left is looked at behind the last one (`many/end.lua`): the reply is {-1}
-- also where all who are left turn out to be dead, and the lock is freed.

local hash, owner, hold, tag = KEYS[1], ARGV[1], ARGV[2], ARGV[6]
local found = redis.call('hmget', hash, 'mode', owner, owner .. ':holds')
-- Others came to know the owner, and act as it; or its lease was made shorter.
if hold == '' and found[3] then hold = '-' end
if hold ~= '' then load_holds() end

local function free(...)
  redis.call('del', ...)
  local told = redis.pcall(ARGV[8], ARGV[9], '0')
  local no = refused(told)
  if no then return {0, no.err} end
  return -told
end

local mode, count = found[1], tonumber(found[2]) or 0
if not mode or count == 0 then load_readers() end
if not mode then
  if redis.call('exists', hash) == 1 then return holder(hash) end
  redis.pcall(ARGV[8], ARGV[9], '0')
  return nil
end
if count == 0 then return holder(hash) end

local before, ids, left = '', '', 0
if hold ~= '' then
  before = found[3] or ''
  ids, left = holds.give_back(before, count, hold, ARGV[5])
  if not ids then return left end
end
local fields = mode == 'read' and redis.call('hlen', hash)
if left == 0 and count == 1 and fields == (before == '' and 2 or 3) then
  return free(hash, cover(tag, owner, 1))
end
local later = deferred and mode == 'read' and left == 0
if not later then load_readers() end
-- From here to the first write, all that must be read (`covers.lua`).
local lease, anew = 0, false
if left > 0 then
  -- Covers go from the last, holds in any order: what is left to others of this owner keeps the longest.
  local least, keep = tonumber(ARGV[7]), 0
  if ARGV[4] == '' or not holds.are_all(ids, left, ARGV[4]) or holds.too_late(ARGV[5]) then
    keep = covered(tag, owner, count, math.huge)
  end
  lease = math.max(least > 0 and tonumber(ARGV[3]) or 0, keep)
  least = math.max(least, keep)
  anew = least > 0 and covered(tag, owner, left, least) < least
end
-- Covers that go and are not in KEYS, because other clients act as this owner.
for n = math.max(left, #KEYS - 1) + 1, math.min(count, left + MOST) do redis.call('exists', cover(tag, owner, n)) end
local now, live, dead
if mode == 'read' and not later then
  now = redis.call('pttl', hash)
  if anew then now = math.max(now, lease) end
  live, dead = lease_needed(hash, tag, fields, now, {owner = owner, count = count, left = left, anew = anew and lease})
end
-- A script is not rolled back: what may be refused comes first, or is undone.
if left == 0 then
  redis.call('hdel', hash, owner, owner .. ':holds')
else
  holds.write(hash, owner, left, ids)
end
for n = left + 1, math.min(count, left + MOST) do
  local no = refused(redis.pcall('del', cover(tag, owner, n)))
  if no then
    load_holds()
    holds.put_back(hash, owner, count, before)
    return no
  end
end
if anew then
  redis.call('set', cover(tag, owner, left), '1', 'px', lease)
  if redis.call('pttl', hash) < lease then redis.call('pexpire', hash, lease) end
end
if later then
  deferred[#deferred + 1] = {hash = hash, tag = tag, publish = ARGV[8], channel = ARGV[9]}
elseif live and live <= 0 then
  return free(hash)
else
  give_lease(hash, now, live, dead, ARGV[8], ARGV[9])
end
return left > 0 and left or {-1}
