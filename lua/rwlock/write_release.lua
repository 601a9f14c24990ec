-- Give back one of the owner's holds for writing; the last one frees the lock, or leaves it to the owner's own holds for
-- reading, and wakes all waiters of every client.
-- KEYS   1 the lock's hash   2 its channel
-- ARGV   1 owner
--        2 hold count to be left to the owner; -1 = unknown, count one down
--        3 lease in ms for what is left
--        4 tag
--        5 publish command
-- Reply  n         n holds are left
--        -n        not held for writing any more; n clients were told (on this node)
--        {0, text} as -n, but nobody could be told: the server's reason
--        nil       the lock is free and was not ours
--        text      held by this other owner, or by this one for reading
-- Idempotent where ARGV 2 is above 0. At 0 a repeat answers nil or an owner: the caller knows that it repeats.
-- Same state and message as Redisson's write lock (protocol 10.4), without its latch key, but: what is left to readers is
-- told, so that others come in at once; holds for reading that are dead keep nobody out, and those that live are not cut short.

local hash, owner, tag = KEYS[1], ARGV[1], ARGV[4]
local field = owner .. ':write'
local found = redis.call('hmget', hash, 'mode', field, owner)
local mode, count, reads = found[1], tonumber(found[2]) or 0, tonumber(found[3]) or 0
if not mode then
  if redis.call('exists', hash) == 1 then return holder(hash) end
  redis.pcall(ARGV[5], KEYS[2], '1')
  return nil
end
if mode ~= 'write' or count == 0 then return holder(hash) end

local left = tonumber(ARGV[2])
if left < 0 then left = count - 1 end
if left > 0 then
  if left ~= count then redis.call('hset', hash, field, left) end
  redis.call('pexpire', hash, math.max(tonumber(ARGV[3]), covered(tag, owner, reads, math.huge)))
  return left
end

if reads > 0 and covered(tag, owner, reads, 1) > 0 then
  redis.call('hdel', hash, field)
  redis.call('hset', hash, 'mode', 'read')
else
  redis.call('del', hash)
end
local told = redis.pcall(ARGV[5], KEYS[2], '1')
local no = refused(told)
if no then return {0, no.err} end
return -told
