-- Free the lock whoever holds it, and wake a waiter of every client of ours.
-- KEYS   1 the lock
-- ARGV   1 last moment in ms of the server's time   2 publish command   3 the lock's channel
-- Reply  1 it was held, 0 it was free; {1, text} it was held but nobody could be told; {-7, at} too late, nothing was done
-- Idempotent, until its last moment. O(1).

load_holds()
local late = holds.too_late(ARGV[1])
if late then return late end
-- Refused where it is something else.
if not redis.call('get', KEYS[1]) then return 0 end
redis.call('del', KEYS[1])
local told = redis.pcall(ARGV[2], ARGV[3], '0')
if type(told) == 'table' and told.err then return {1, told.err} end
return 1
