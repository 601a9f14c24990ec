-- Removes a waiter from the queue of a fair lock, as the crate's scripts remove a dead waiter (`lua/fair/queue.lua`).
-- Ours = a waiter of this crate (uuid of version 8); Java = a waiter of Redisson.
-- KEYS   1 hash   2 queue   3 deadlines   4 registrations of our waiters.
-- ARGV   1 owner   2 prefix of the waiters' channels.
-- Reply  position of the owner, from 1; 0 = the owner was not in the queue, and nothing was changed.
--
-- A deadline of Java is the deadline of the waiter ahead plus the Java waiter's own wait. So the deadlines of the Java
-- waiters right behind the removed waiter become earlier. The first of these deadlines now follows the deadline of the
-- waiter ahead, or the end of the lock's lease. The deadlines from the next waiter of ours on stay: its client sets its
-- deadline again within 2.7 s, and moves the Java waiters behind it by the same time.
-- The removed waiter gets a message: if it is alive, it asks the server, and queues again at the end. If the lock is
-- free, the new head gets a message, too, and acquires the lock by its own attempt. Messages are sent to plain and to
-- sharded channels, because clients of a cluster may use either.
-- Idempotent. O(waiters).

local owner = ARGV[1]
-- The default of `Options::fair_grace`, in ms. If the deadline of a Java head is nearer than this, a script has
-- notified the head and set the deadline. So the deadline does not show the head's wait.
local GRACE = 500

-- While a cluster moves this slot, the missing key stops the script here, before the first write.
local is_free = redis.call('exists', KEYS[1], KEYS[4] .. ':none') == 0
local time = redis.call('time')
local at = time[1] * 1000 + math.floor(time[2] / 1000)

local function is_ours(waiter)
  return string.byte(waiter, 15) == 56
end

local function notify(waiter)
  redis.pcall('publish', ARGV[2] .. ':' .. waiter, '0')
  redis.pcall('spublish', ARGV[2] .. ':' .. waiter, '0')
end

local function deadline(waiter)
  return tonumber(redis.call('zscore', KEYS[3], waiter) or nil)
end

-- Makes the deadlines of the Java waiters from this position on (0 = the head), up to the first waiter of ours, earlier
-- by the same `by` ms. Limits for the first new deadline:
-- - `least`: the earliest value.
-- - `gone`: the deadline of a removed head. The latest value is `least` plus the first waiter's distance to `gone`.
local function nearer(from, by, least, gone)
  while true do
    local waiter = redis.call('lindex', KEYS[2], from)
    if not waiter or is_ours(waiter) then return end
    local due = deadline(waiter)
    if due then
      if gone then by = math.max(by, due - least - math.max(0, due - gone)) end
      if least then by = math.min(by, due - least) end
      least, gone = nil, nil
      redis.call('zincrby', KEYS[3], -by, waiter)
    end
    from = from + 1
  end
end

local all, position = redis.call('lrange', KEYS[2], 0, -1), 0
local due = deadline(owner)
for i = #all, 1, -1 do
  if all[i] == owner then
    position = i
    redis.call('lrem', KEYS[2], -1, owner)
    local ahead = i > 1 and deadline(all[i - 1]) or nil
    local was_notified = i == 2 and ahead and not is_ours(all[1]) and ahead <= at + GRACE
    if i == 1 and due then
      nearer(0, 0, at + math.max(0, redis.call('pttl', KEYS[1])), due)
    elseif due and ahead and not was_notified then
      nearer(i - 1, due - ahead)
    end
  end
end
if position == 0 then return 0 end
redis.call('zrem', KEYS[3], owner)
redis.call('hdel', KEYS[4], owner)

local head = redis.call('lindex', KEYS[2], 0)
if not head then redis.call('del', KEYS[3], KEYS[4]) end
notify(owner)
if head and is_free then notify(head) end
return position
