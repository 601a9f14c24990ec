-- Make the lease last so long from now for many locks, each only where its owner still holds it. Never creates anything.
-- KEYS   the locks' hashes
-- ARGV   1 lease in ms: one that is longer now is left alone; negative = set to so many ms even then, where
--          the owner has no other holds than those that are relied on; 0 = every lease is left alone
--        2 last moment in ms of the server's time; 0 = none
--        and for KEYS[i], from 2i + 1 on: owner; the holds that are relied on, one `,id` each ('-' for one that is not
--        listed), '' = the only one it will ever have; behind the first `~n` where the lease is negative: the number of
--        this command (`common/holds.lua`)
-- Reply  {-7, at}  too late, nothing was done; at = the server's time in ms
--        else a list, an entry a key: 1 renewed, 0 not held by that owner, text = the server's reason for refusing this
--        one, {n, ..} = renewed, but for the holds with these numbers in the list, which are gone
-- Idempotent; a copy makes no lease shorter, and one of a negative lease does nothing. One bad key does not stop the
-- others. O(keys).

local out = {}
for i = 1, #KEYS do
  local owner, wanted = ARGV[2 * i + 1], ARGV[2 * i + 2]
  local found = redis.pcall('hmget', KEYS[i], owner, owner .. ':holds')
  local held, gone, way, list = found.err and found or found[1] and 1 or 0, nil, 'longer', nil
  if held == 1 and (exactly or wanted ~= '' or found[2]) then
    load_holds()
    held, gone, way, list = holds.relied(found[1], found[2] or '', wanted, exactly)
    if list then held = holds.note(KEYS[i], owner, list) or held end
  end
  if held == 1 and way ~= 'leave' then
    -- Another hold of this owner may have asked for a longer lease.
    local left = way == 'set' and -1 or redis.pcall('pttl', KEYS[i])
    if type(left) == 'table' then
      held = left
    else
      local to = lease_for(left)
      held = to and redis.pcall('pexpire', KEYS[i], to) or held
    end
  end
  if type(held) == 'table' then
    held = held.err
  elseif held == 1 and gone and #gone > 0 then
    held = gone
  end
  out[i] = held
end
return out
