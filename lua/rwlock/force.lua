-- Frees the lock if it is held in this mode, whoever holds it, and wakes waiters.
-- KEYS   [1] the lock's hash.
-- ARGV   [1] mode: read or write.
--        [2] message: 0 wakes one waiter in each client, 1 wakes all.
--        [3] last moment in ms of the server's time.   [4] publish command.   [5] channel.
-- Reply  1 = it was held; 0 = it was free; 2 = it is held in the other mode, and stays held.
--        `{1, text}` it was held, but the message was refused.
--        `{-7, at}` too late, nothing was done; at = the server's time in ms.
-- A copy that arrives before the last moment frees the lock again, whoever holds it then. O(fields), because the server
-- deletes them. As in Redisson, covers are left to expire.

load_holds()
local late = holds.too_late(ARGV[3])
if late then return late end
local mode = redis.call('hget', KEYS[1], 'mode')
if not mode then return redis.call('exists', KEYS[1]) == 1 and foreign() or 0 end
if mode ~= ARGV[1] then return 2 end
redis.call('del', KEYS[1])
local no = refused(redis.pcall(ARGV[4], ARGV[5], ARGV[2]))
if no then return {1, no.err} end
return 1
