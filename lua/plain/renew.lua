-- Make the lease last so long from now for many locks, each only where it has this value still. Never creates anything.
-- KEYS   the locks
-- ARGV   1 lease in ms: one that is longer now is left alone; negative = set to so many ms even then;
--          0 = every lease is left alone
--        2 last moment in ms of the server's time; 0 = none
--        and for KEYS[i], ARGV[i + 2]: its value
-- Reply  {-7, at}  too late, nothing was done; at = the server's time in ms
--        else a list, an entry a key: 1 renewed, 0 it has not got this value, text = the server's reason for refusing this one
-- Idempotent; a copy makes no lease shorter, but for one of a negative lease, until its last moment. One bad key does not
-- stop the others. O(keys).

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
