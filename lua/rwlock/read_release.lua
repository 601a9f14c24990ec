-- Give back one of the owner's holds for reading; the last live reader frees the lock and wakes a waiter of every client.
-- KEYS   1 the lock's hash   2 its channel
-- ARGV   1 owner
--        2 hold count to be left to the owner; -1 = unknown, count one down
--        3 for how many ms what is left must be covered at least, or else for ARGV 6; 0 = as it is
--        4 tag
--        5 publish command
--        6 the lease, in full, of what is left
-- Reply  n         n holds are left
--        {-1}      none of this owner's is left; others hold it, or this owner for writing
--        -n        free; n clients were told (on this node)
--        {0, text} free, but nobody could be told: the server's reason
--        nil       the lock is free and was not ours
--        text      held by this other owner
-- Idempotent where ARGV 2 is above 0. At 0 a repeat answers nil, {-1}'s or another owner: the caller knows that it repeats.
-- Same state and message as Redisson's read lock (protocol 10.3), without its latch key, but: under the owner's own write
-- hold the hash's lease stays, for it is the writer's. Otherwise it becomes what the readers that are left are covered for,
-- and if that is sooner by a second or more, a waiter of every client is woken.

local hash, owner, tag = KEYS[1], ARGV[1], ARGV[4]

local function free(...)
  redis.call('del', ...)
  local told = redis.pcall(ARGV[5], KEYS[2], '0')
  local no = refused(told)
  if no then return {0, no.err} end
  return -told
end

local found = redis.call('hmget', hash, 'mode', owner)
local mode, count = found[1], tonumber(found[2]) or 0
if not mode then
  if redis.call('exists', hash) == 1 then return holder(hash) end
  redis.pcall(ARGV[5], KEYS[2], '0')
  return nil
end
if count == 0 then return holder(hash) end

local left = tonumber(ARGV[2])
if left < 0 then left = count - 1 end
if left == 0 and count == 1 and mode == 'read' and redis.call('hlen', hash) == 2 then
  return free(hash, cover(tag, owner, 1))
end
-- A script is not rolled back: what may be refused comes first, or is undone.
if left == 0 then
  redis.call('hdel', hash, owner)
elseif left ~= count then
  redis.call('hset', hash, owner, left)
end
for n = left + 1, count do
  local no = refused(redis.pcall('del', cover(tag, owner, n)))
  if no then
    redis.pcall('hset', hash, owner, count)
    return no
  end
end
local least = tonumber(ARGV[3])
if left > 0 then
  -- Holds may be given back in any order, covers go from the last.
  if least > 0 and covered(tag, owner, left, least) < least then
    redis.call('set', cover(tag, owner, left), '1', 'px', ARGV[6])
    if redis.call('pttl', hash) < tonumber(ARGV[6]) then redis.call('pexpire', hash, ARGV[6]) end
  end
end
if mode == 'read' then
  local now = redis.call('pttl', hash)
  local live = longest(hash, tag, now < 0 and math.huge or math.max(now, 1))
  if live <= 0 then return free(hash) end
  -- Asked anew: a millisecond may have gone by, and the hash must not end before the covers.
  if live ~= redis.call('pttl', hash) then redis.call('pexpire', hash, live) end
  -- Whoever waits was told of a later end.
  if now - live > 1000 then redis.pcall(ARGV[5], KEYS[2], '0') end
end
return left > 0 and left or {-1}
