-- Renews the leases of many locks, each only if it still has the given value. Never creates a key.
-- KEYS   the locks.
-- ARGV   [1] lease in ms, from now; a longer lease stays. Negative = it may become shorter. 0 = leave every lease.
--        [2] last moment in ms of the server's time; 0 = none.
--        [i + 2] value of KEYS[i].
-- Reply  `{-7, at}` too late, nothing was done; at = the server's time in ms.
--        Otherwise a list with one entry per key: 1 = renewed; 0 = another value or none; text = the server's error.
-- Idempotent. With a negative lease, a late copy may shorten a lease until the last moment. An error at one key does
-- not stop the others. O(keys).

local out = {}
for i = 1, #KEYS do
  local done = redis.pcall('get', KEYS[i])
  if type(done) ~= 'table' then
    if done ~= ARGV[i + 2] then
      done = 0
    else
      local left = exactly and -1 or redis.pcall('pttl', KEYS[i])
      if type(left) == 'table' then
        done = left
      else
        local to = lease_for(left)
        done = to and redis.pcall('pexpire', KEYS[i], to) or 1
      end
    end
  end
  out[i] = type(done) == 'table' and done.err or done
end
return out
