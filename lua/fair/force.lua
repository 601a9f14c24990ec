-- Frees the lock, whoever holds it, and serves the head of the queue (`queue.lua`).
-- KEYS   1 hash   2 queue   3 deadlines   4 registrations.
-- ARGV   1 last moment in ms of the server's time.
--        2 wait   3 first lease   4 publish command   5 LONG   6 LEASE   7 GRACE   8 CHANNELS (see `queue.lua`).
-- Reply  1 = it was held; 0 = it was free.
--        {1 or 0, n}  1 or 0 as above, and the head was served. n = 1: the lock was passed on. n = 2: the head must
--                  acquire or confirm within GRACE.
--        {1, text}  it was held and was freed, but serving the head failed; text = the error.
--        {-7, at}  too late: nothing was done; at = the server's time in ms.
-- Not idempotent: until the last moment, a repeat frees the lock again, even from a holder that acquired it after the
-- earlier run.

load_holds()
local late = holds.too_late(ARGV[1])
if late then return late end
local kind = redis.call('type', KEYS[1])
if type(kind) == 'table' then kind = kind.ok end
if kind ~= 'hash' and kind ~= 'none' then
  return redis.error_reply('WRONGTYPE the key holds a ' .. kind .. ', not a lock')
end
-- `is_free` is called so that a missing key stops the script before the first write.
local waits = redis.pcall('lindex', KEYS[2], 0)
if waits then is_free(KEYS) end
local held = redis.call('del', KEYS[1])
if not waits then return held end

local function pass_on()
  load_queue(ARGV[5], ARGV[6], ARGV[7], ARGV[8])
  return queue.serve(KEYS, queue.time(), tonumber(ARGV[2]), ARGV[3], ARGV[4])
end

-- The lock is free, even if the queue cannot be served.
local ran, served = pcall(pass_on)
if held == 1 and not ran then return {1, type(served) == 'table' and served.err or served} end
if type(served) == 'table' then return held == 1 and {1, served.err} or held end
return ran and served > 0 and {held, served} or held
