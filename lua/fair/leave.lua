-- Give up waiting: the owner leaves the queue, and what it holds beyond what it had before is given back. When the
-- lock is free then, the head of the queue is served.
-- KEYS   1 hash   2 queue   3 deadlines   4 prefix of the waiters' channels
-- ARGV   1 owner
--        2 hold count to be left to the owner at the most; -1 = leave it alone
--        3 lease in ms for what is left
--        4 own wait in ms   5 first lease in ms of a lock that is passed on   6 publish command
--        7 Redisson's fairLockWaitTimeout in ms   8 the watchdog's lease in ms
-- Reply  as that of release.lua, for the holds; nil when it held nothing
-- Idempotent. Same state as Redisson's (protocol 9.6), where the new head is not told.

local owner, most = ARGV[1], tonumber(ARGV[2])
local reply = nil
told(ARGV[7], ARGV[8])

local count = tonumber(redis.call('hget', KEYS[1], owner) or 0)
if most >= 0 and count > most then
  if most > 0 then
    redis.call('hset', KEYS[1], owner, most)
    redis.call('pexpire', KEYS[1], ARGV[3])
  else
    redis.call('del', KEYS[1])
  end
  reply = most
end

-- From the end: whoever gives up because its process ends came last more often than first.
local queue = redis.call('lrange', KEYS[2], 0, -1)
for i = #queue, 1, -1 do
  if queue[i] == owner then
    local due = redis.call('zscore', KEYS[3], owner)
    local ahead = i > 1 and redis.call('zscore', KEYS[3], queue[i - 1])
    redis.call('lrem', KEYS[2], -1, owner)
    -- Those of Java behind it stand behind the one ahead of it now.
    if due and ahead then
      nearer(KEYS, i - 1, due - ahead)
    elseif i == 1 then
      nearer(KEYS, 0, tonumber(ARGV[4]), time() + math.max(0, redis.call('pttl', KEYS[1])), due)
    end
  end
end
redis.call('zrem', KEYS[3], owner)

if queue[1] and redis.call('exists', KEYS[1]) == 0 then
  local served = serve(KEYS, time(), tonumber(ARGV[4]), ARGV[5], ARGV[6])
  if reply == 0 and type(served) ~= 'table' then reply = -served end
elseif queue[1] and redis.call('exists', KEYS[2]) == 0 then
  redis.call('del', KEYS[3])
end
return reply
