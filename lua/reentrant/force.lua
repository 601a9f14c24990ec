-- Frees the lock, whoever holds it, and wakes one waiter in each client.
-- KEYS   [1] the lock's hash.
-- ARGV   [1] last moment in ms of the server's time.
--        [2] publish command; omitted = no message.   [3] the lock's channel, if there is a message.
-- Reply  1 = it was held; 0 = it was free; {1, text} = it was held, but the message was refused.
--        `{-7, at}` too late, nothing was done; at = the server's time in ms.
-- A copy that arrives before the last moment frees the lock again, whoever holds it then.

load_holds()
local late = holds.too_late(ARGV[1])
if late then return late end
local kind = redis.call('type', KEYS[1])
if type(kind) == 'table' then kind = kind.ok end
if kind ~= 'hash' and kind ~= 'none' then
  return redis.error_reply('WRONGTYPE the key holds a ' .. kind .. ', not a lock')
end
if redis.call('del', KEYS[1]) == 0 then
  return 0
end
if (ARGV[2] or '') == '' then return 1 end
local told = redis.pcall(ARGV[2], ARGV[3], '0')
if type(told) == 'table' and told.err then
  return {1, told.err}
end
return 1
