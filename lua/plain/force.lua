-- Frees the lock, whoever holds it, and wakes one waiter in each client of this crate.
-- KEYS   [1] the lock.
-- ARGV   [1] last moment in ms of the server's time.   [2] publish command.   [3] the lock's channel.
-- Reply  1 = it was held; 0 = it was free; {1, text} = it was held, but the message was refused.
--        `{-7, at}` too late, nothing was done; at = the server's time in ms.
-- A copy that arrives before the last moment frees the lock again, whoever holds it then. O(1).

load_holds()
local late = holds.too_late(ARGV[1])
if late then return late end
-- GET is refused if the key is of another type.
if not redis.call('get', KEYS[1]) then return 0 end
redis.call('del', KEYS[1])
local told = redis.pcall(ARGV[2], ARGV[3], '0')
if type(told) == 'table' and told.err then return {1, told.err} end
return 1
