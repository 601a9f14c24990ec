-- Lists the waiters, in order.
-- KEYS   1 queue   2 deadlines
-- Reply  {at, owner, deadline, owner, deadline, ..}: at and deadlines in ms of the server's time; '' = no deadline
-- Reads only.

local now = redis.call('time')
local out = {now[1] * 1000 + math.floor(now[2] / 1000)}
for i, owner in ipairs(redis.call('lrange', KEYS[1], 0, -1)) do
  out[2 * i] = owner
  out[2 * i + 1] = redis.call('zscore', KEYS[2], owner) or ''
end
return out
