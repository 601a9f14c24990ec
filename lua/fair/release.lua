-- Give back one hold of the owner; the last one frees the lock, and the head of the queue is served.
-- KEYS   1 hash   2 queue   3 deadlines   4 prefix of the waiters' channels
-- ARGV   1 owner
--        2 hold count to be left to the owner; -1 = unknown, count one down
--        3 lease in ms for what is left
--        4 own wait in ms   5 first lease in ms of a lock that is passed on   6 publish command
--        7 Redisson's fairLockWaitTimeout in ms   8 the watchdog's lease in ms
-- Reply  n         n holds are left
--        0, -1     free, and nobody waited; free, and passed on to the head or its client told
--        {0, text} free, but the head could not be told: the server's reason
--        nil       the lock was not ours and is free, or was passed on just now
--        text      held by this other owner
-- Idempotent where ARGV 2 is above 0. At 0 a repeat answers nil or another owner: the caller knows that it repeats.
-- Same state as Redisson's fair lock (protocol 9.5), without its latch key; a head of ours is made the owner.

told(ARGV[7], ARGV[8])
local function pass_on()
  if not redis.call('lindex', KEYS[2], 0) then return 0 end
  return serve(KEYS, time(), tonumber(ARGV[4]), ARGV[5], ARGV[6])
end

if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
  local holder = redis.call('hkeys', KEYS[1])[1]
  if not holder then pass_on() end
  return holder
end

local left = tonumber(ARGV[2])
if left < 0 then
  -- HINCRBY is refused where memory is short, which must not be in the way of the last release.
  left = redis.call('hget', KEYS[1], ARGV[1]) == '1' and 0 or redis.call('hincrby', KEYS[1], ARGV[1], -1)
elseif left > 0 then
  redis.call('hset', KEYS[1], ARGV[1], left)
end
if left > 0 then
  redis.call('pexpire', KEYS[1], ARGV[3])
  return left
end

redis.call('del', KEYS[1])
local served = pass_on()
if type(served) == 'table' then return {0, served.err} end
return -served
