-- Free the lock whoever holds it, and serve the head of the queue.
-- KEYS   1 hash   2 queue   3 deadlines   4 prefix of the waiters' channels
-- ARGV   1 own wait in ms   2 first lease in ms of a lock that is passed on   3 publish command
--        4 Redisson's fairLockWaitTimeout in ms   5 the watchdog's lease in ms
-- Reply  1 it was held, 0 it was free; {1, text} it was held but the head could not be told
-- Idempotent.

local kind = redis.call('type', KEYS[1])
if type(kind) == 'table' then kind = kind.ok end
if kind ~= 'hash' and kind ~= 'none' then
  return redis.error_reply('WRONGTYPE the key holds a ' .. kind .. ', not a lock')
end
told(ARGV[4], ARGV[5])
local held = redis.call('del', KEYS[1])
if redis.call('lindex', KEYS[2], 0) then
  local served = serve(KEYS, time(), tonumber(ARGV[1]), ARGV[2], ARGV[3])
  if held == 1 and type(served) == 'table' then return {1, served.err} end
end
return held
