-- Give the lock back: compare and delete; and wake a waiter of every client of ours.
-- KEYS   1 the lock
-- ARGV   1 publish command   2 the lock's channel
--        3 ... the value; or several, any of which is meant
--        where 3 is '': 4 ... what all values of the owner begin with, in each form: which one it has is only told
-- Reply  0, -n      free; n clients were told (on this node)
--        {0, text}  free, but nobody could be told: the server's reason
--        {-8, '+' .. value}  nothing was done: the owner has this value
--        nil        the lock is free and was not ours
--        text       held by this other one
-- Idempotent: a value is never used again, so that a repeat finds none, or another one. O(1).
-- Redlock's page: delete where the value is still the own one.

local found = redis.call('get', KEYS[1])
if not found then return nil end
if ARGV[3] == '' then
  if is_of(found, ARGV, 4) then return {-8, '+' .. found} end
  return found
end
local is_ours = false
for i = 3, #ARGV do is_ours = is_ours or found == ARGV[i] end
if not is_ours then return found end

redis.call('del', KEYS[1])
local told = redis.pcall(ARGV[1], ARGV[2], '0')
if type(told) == 'table' and told.err then return {0, told.err} end
return -told
