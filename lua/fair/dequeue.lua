-- Removes a waiter of any client from the queue, and notifies it. Its holds stay. If the lock is free, serves the head
-- of the queue (`queue.lua`).
-- KEYS   1 hash   2 queue   3 deadlines   4 registrations.
-- ARGV   1 owner.
--        2 wait   3 first lease   4 publish command   5 LONG   6 LEASE   7 GRACE   8 CHANNELS (see `queue.lua`).
--        9 last moment in ms of the server's time.
-- Reply  the waiter's position, from 1; 0 = the owner is not in the queue, and nothing was done.
--        {-7, at}  too late: nothing was done; at = the server's time in ms.
-- O(waiters). Not idempotent: until the last moment, a repeat removes a waiter that has queued again.

load_holds()
local late = holds.too_late(ARGV[9])
if late then return late end
local owner, wait, publish = ARGV[1], tonumber(ARGV[2]), ARGV[4]
local free = is_free(KEYS)
local ahead = places(KEYS[2], {owner})[owner]
if not ahead then return 0 end

load_queue(ARGV[5], ARGV[6], ARGV[7], ARGV[8])
remove_waiter(KEYS, owner, queue.ours(owner) and wait or 0)
-- If the waiter is alive, the message makes it query the server and queue again.
queue.notify(publish, owner, '0')
serve_next(KEYS, free, wait, ARGV[3], publish)
return ahead + 1
