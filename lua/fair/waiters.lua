-- Who waits, in order.
-- KEYS   1 queue   2 deadlines
-- Reply  {at, owner, deadline, owner, deadline, ..}; a deadline in ms of the server's time, '' where there is none;
--        at = the server's time in ms
-- Reads only.

load_queue()
local out = {queue.time()}
for i, owner in ipairs(redis.call('lrange', KEYS[1], 0, -1)) do
  out[2 * i] = owner
  out[2 * i + 1] = redis.call('zscore', KEYS[2], owner) or ''
end
return out
