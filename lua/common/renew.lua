-- Renews the leases of many locks, each only if its owner still holds it. Never creates a key.
-- KEYS   the locks' hashes.
-- ARGV   [1] lease in ms, from now; a longer current lease stays. Negative = the lease may also become shorter, if the
--            owner has no holds other than those named here. 0 = leave every lease.
--        [2] last moment in ms of the server's time; 0 = none.
--        [2i + 1] owner of KEYS[i].
--        [2i + 2] the holds to renew, one `,id` each ('-' = the unlisted hold), or '' (`common/holds.lua`). With a
--            negative lease, `~n` follows the first hold: n is this command's number.
-- Reply  `{-7, at}` too late, nothing was done; at = the server's time in ms.
--        Otherwise a list with one entry per key: 1 = renewed; 0 = not held by that owner; text = the server's error.
--        `{n, ..}` = renewed, but the holds with these indexes in ARGV[2i + 2] are gone. An index of 0 = the holder was
--        asked to finish (`revoke.lua`).
-- Idempotent. With a negative lease, a late copy changes no lease. An error at one key does not stop the others.
-- O(keys).

local out = {}
for i = 1, #KEYS do
  local owner, wanted = ARGV[2 * i + 1], ARGV[2 * i + 2]
  local found = redis.pcall('hmget', KEYS[i], owner, owner .. ':holds', 'revoke:holds')
  local held, gone, way, list = found.err and found or found[1] and 1 or 0, nil, 'longer', nil
  if held == 1 and (exactly or wanted ~= '' or found[2]) then
    load_holds()
    held, gone, way, list = holds.relied(found[1], found[2] or '', wanted, exactly)
    if list then held = holds.note(KEYS[i], owner, list) or held end
  end
  if held == 1 and way ~= 'leave' then
    -- The current lease may be longer, because of another hold of this owner.
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
  elseif held == 1 then
    if found[3] then
      gone = gone or {}
      gone[#gone + 1] = 0
    end
    if gone and #gone > 0 then held = gone end
  end
  out[i] = held
end
return out
