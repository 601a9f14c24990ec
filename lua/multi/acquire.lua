-- Acquires all of several locks, or none.
-- KEYS   the locks' hashes.
-- ARGV   [1] owner. It holds none of these locks, except by an earlier copy of this call.
--        [2] lease in ms.
-- Reply  `nil`       all are held, once each; their leases run from now.
--        `{i, n}`    nothing was acquired: KEYS[i] is the first lock that another owner holds; its lease has n ms left,
--                    -1 = no end.
--        `{i, text}` nothing was acquired: KEYS[i] is not a lock; text = the server's error.
-- Idempotent: a hold of this owner is not counted again, and keeps a longer lease. Each lock gets the same state as by
-- an acquire of this lock alone. O(locks).

local mine = {}
-- Usually no lock exists, and one EXISTS for all of them shows that.
local some = redis.call('exists', unpack(KEYS)) > 0
for i = 1, some and #KEYS or 0 do
  if redis.call('exists', KEYS[i]) == 1 then
    mine[i] = redis.pcall('hexists', KEYS[i], ARGV[1])
    if type(mine[i]) == 'table' then return {i, mine[i].err} end
    if mine[i] == 0 then return {i, redis.call('pttl', KEYS[i])} end
  end
end
for i = 1, #KEYS do
  if not mine[i] then redis.call('hset', KEYS[i], ARGV[1], '1') end
  -- PEXPIRE always runs. If it is refused, the locks created so far are deleted (Acknowledgement and Undo in
  -- `common/holds.lua`).
  local left = mine[i] and redis.call('pttl', KEYS[i]) or -1
  local leased = redis.pcall('pexpire', KEYS[i], left < tonumber(ARGV[2]) and ARGV[2] or left)
  if type(leased) == 'table' and leased.err then
    for taken = 1, i do
      if not mine[taken] then redis.call('del', KEYS[taken]) end
    end
    return leased
  end
end
return nil
