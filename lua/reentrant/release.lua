-- Give back one hold of the owner; the last one frees the lock and wakes a waiter of every client.
-- KEYS   1 the lock's hash
-- ARGV   what is empty, or 0, at the end may be left out
--        1 owner
--        2 lease in ms for what is left
--        3 publish command; empty = nobody is told
--        4 the lock's channel, where somebody is told
--        5 hold (`common/holds.lua`)
--        6 the holds that the caller has left, one `,id` each; '' = unknown
--        7 last moment in ms of the server's time, of giving back any hold, or of making the lease shorter; 0 = none
-- Reply  n         n holds are left
--        0, -n     free; n clients were told (on this node)
--        {0, text} free, but nobody could be told: the server's reason
--        {-8, id}  nothing was done: for hold '*', which one it is to be, by its id. One that is not listed is given back at once
--        {-7, at}  too late, nothing was done; at = the server's time in ms
--        nil       the lock is free and was not ours
--        text      held by this other owner
--        {-2, n}   the hold is not there, but n others of this owner are
-- Idempotent: a repeat answers nil, an owner or {-2, n}; the caller knows that it repeats. But for hold '*', until its last
-- moment.
-- Same state and message as Redisson's RLock, or its spin lock, without their latch key.

local owner, hold, mine, last = ARGV[1], ARGV[5] or '', ARGV[6] or '', ARGV[7] or '0'
-- Mostly the owner's count is all there is, and nothing has to be asked about it.
local fields = hold == '' and redis.call('hkeys', KEYS[1])
if not fields or fields[1] ~= owner or fields[2] then
  local found = redis.call('hmget', KEYS[1], owner, owner .. ':holds')
  -- Others came to know the owner, and act as it; or its lease was made shorter.
  if hold == '' and found[2] then hold = '-' end
  load_holds()
  if not found[1] then return holds.somebody(KEYS[1]) end

  if hold ~= '' then
    local ids, left = holds.give_back(found[2] or '', tonumber(found[1]) or 0, hold, last)
    if not ids then return left end
    if left > 0 then
      holds.write(KEYS[1], owner, left, ids)
      holds.rearm(KEYS[1], ARGV[2], left, ids, mine, last)
      return left
    end
  end
end

redis.call('del', KEYS[1])
if (ARGV[3] or '') == '' then return 0 end
local told = redis.pcall(ARGV[3], ARGV[4], '0')
if type(told) == 'table' and told.err then return {0, told.err} end
return -told
