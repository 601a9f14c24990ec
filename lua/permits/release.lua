-- Releases permits, and wakes waiters.
-- KEYS   [1] free count.   [2] leases.
-- ARGV   [1] ids.   [2] 1 = all of these permits or none; 0 = each of these permits that is held.
--        [3] last moment in ms of the server's time; 0 = none.
--        [4] publish command.   [5] channel.
-- Reply  `-n`       released; n clients on this node received the message.
--        `{0, text}` released, but the server refused to publish the message: text = its error.
--        `nil`      none of these permits was held. With ARGV[2] = 1: not all of them were held.
--        `{-7, at}` too late, nothing was done; at = the server's time in ms.
-- Idempotent: a repeat releases nothing. O(k log n): k = ids, n = held permits.
-- Redisson's state. Differences: the message is always the free count; Redisson's bulk release sends the number of
-- released permits. A free count below 1 is not sent, because Redisson's waiters fail on a negative number.

local count, leases, now = KEYS[1], KEYS[2], clock()
if ARGV[3] ~= '0' and now > tonumber(ARGV[3]) then return {-7, now} end
local ids, live, old = split(ARGV[1]), 0, {}
for _, id in ipairs(ids) do
  local ends = redis.call('zscore', leases, id)
  if ends then
    if tonumber(ends) > now then live = live + 1 end
    old[#old + 1] = ends
    old[#old + 1] = id
  end
end
if #old == 0 or ARGV[2] == '1' and live < #ids then return nil end
-- Reads the free count before the first write, so that a key of another type stops the script here.
read_count(count)
local removed = redis.call('zrem', leases, unpack(ids))
local free = redis.pcall('incrby', count, removed)
if error_of(free) then
  redis.pcall('zadd', leases, unpack(old))
  return free
end
local told = free > 0 and redis.pcall(ARGV[4], ARGV[5], free) or 0
if error_of(told) then return {0, error_of(told)} end
if live == 0 then return nil end
return -told
