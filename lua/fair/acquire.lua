-- Acquires the lock if it is free and no other waiter is ahead, or re-enters it as the same owner. Otherwise may join
-- the queue (ARGV 7). Terms: `queue.lua`.
-- KEYS   1 hash   2 queue   3 deadlines   4 registrations.
-- ARGV   1 owner.
--        2 lease in ms; on re-entry, a longer lease is kept.
--        3 hold (`common/holds.lua`): '' or an id.
--        4 a hold that the owner must still have; '' = none.
--        5 last moment in ms of the server's time, for listed holds and for joining the queue; 0 = none.
--        6 1 = the owner must have no other hold.
--        7 0 = ask only; 1 = join the queue; 2 = the owner is in the queue.
--        8 registration of the waiter.
--        9 wait   10 first lease   11 publish command   12 LONG   13 LEASE   14 GRACE   15 CHANNELS (see `queue.lua`).
-- Reply  nil         held; the hold is counted, and its lease starts now.
--        -2          held: the lock was passed on to this waiter earlier (only if ARGV 7 is 2).
--        -3          the owner no longer has the hold of ARGV 4.
--        -4          the hold does not exist, and the owner is no longer in the queue (only if ARGV 7 is 2).
--        -6          the owner holds the lock already (only if ARGV 6 is 1).
--        {ttl, at}   busy: the lease has ttl ms left (-1 = no end; -2 = the lock is free, but others are ahead);
--                    at = the server's time in ms.
--        {-7, at}    too late: nothing was done for this owner.
-- Idempotent. Same state as Redisson's fair lock, except for our deadlines and registrations.

take_out()
local owner, hold, earlier, queueing = ARGV[1], ARGV[3], ARGV[4], ARGV[7]
local wait, first_lease, publish = tonumber(ARGV[9]), ARGV[10], ARGV[11]
if hold ~= '' then
  load_holds()
  local late = holds.too_late(ARGV[5])
  if late then return late end
end

-- Sets the lease: the longer of ARGV 2 and `left`. If the server refuses, calls `undo` and returns the error. PEXPIRE
-- always runs (Undo and Acknowledgement in `common/holds.lua`).
local function lease(undo, left)
  local leased = redis.pcall('pexpire', KEYS[1], left and left >= tonumber(ARGV[2]) and left or ARGV[2])
  if type(leased) == 'table' and leased.err then
    undo()
    return leased
  end
end

local free = is_free(KEYS)
local count = not free and redis.call('hget', KEYS[1], owner)
if count then
  count = tonumber(count) or 0
  local ids, counted = '', hold == ''
  if hold ~= '' or queueing == '2' then
    load_holds()
    ids = holds.listed(KEYS[1], owner)
    -- If this is a late copy, the owner may have only holds that it acquired later. None of them is this acquire's
    -- hold.
    counted = hold == '' and holds.unlisted(count, ids) > 0 or holds.is_counted(ids, hold)
    if hold == '' and not counted then return -4 end
  end
  local left = redis.call('pttl', KEYS[1])
  if counted and queueing == '2' then
    -- ARGV 2 replaces the first lease. A shorter lease does so only once, because a late copy must not shorten a lease
    -- that was promised since. So the command is noted (`cut_once`), even if it shortens nothing now.
    local sets = left < tonumber(ARGV[2])
    if tonumber(ARGV[2]) < tonumber(first_lease) then
      local noted = holds.cut_once(KEYS[1], owner, count, ids, hold, 0)
      if type(noted) == 'table' then return noted end
      sets = sets or noted and left <= tonumber(first_lease) and count == 1
    end
    redis.call('pexpire', KEYS[1], sets and ARGV[2] or left)
    return -2
  end
  if not counted then
    if ARGV[6] == '1' then return -6 end
    if earlier ~= '' and not holds.has(ids, count, earlier) then return -3 end
    holds.add(KEYS[1], owner, count, ids, hold)
  end
  return lease(function()
    if not counted then holds.put_back(KEYS[1], owner, count, ids) end
  end, left)
end
if earlier ~= '' then return -3 end

local first, at = redis.call('lindex', KEYS[2], 0), nil
if first or not free or queueing == '2' then load_queue(ARGV[12], ARGV[13], ARGV[14], ARGV[15]) end
-- If this owner is the head, no waiter ahead needs to be removed. Unless ARGV 7 is 2, the head is checked: it may be
-- the same owner's waiter for another lock with this queue.
if first and (first ~= owner or queueing ~= '2' and queue.ours(owner) and not queue.registered(KEYS, owner)) then
  at = queue.time()
  first = queue.head(KEYS, at, wait, publish)
end
if free then
  if first == owner or (not first and queueing ~= '2') then
    if hold == '' then
      redis.call('hset', KEYS[1], owner, 1)
    else
      redis.call('hset', KEYS[1], owner, 1, owner .. ':holds', ',' .. hold)
    end
    local failed = lease(function() redis.call('del', KEYS[1]) end)
    if not failed and first then queue.advance(KEYS, owner, at or queue.time(), wait) end
    return failed
  end
  if first then queue.serve(KEYS, at, wait, first_lease, publish) end
end

at = at or queue.time()
if queueing == '2' then
  if not redis.call('zscore', KEYS[3], owner) then
    local there = false
    for _, waiter in ipairs(redis.call('lrange', KEYS[2], 0, -1)) do
      there = there or waiter == owner
    end
    if not there then
      -- The owner is not in the queue, so no lock may be passed on to its registration.
      if queue.registered(KEYS, owner) == ARGV[8] then redis.call('hdel', KEYS[4], owner) end
      return -4
    end
    redis.call('zadd', KEYS[3], stamped(at + wait + queue.room(KEYS, at, wait), at), owner)
  end
  if not queue.registered(KEYS, owner) then queue.register(KEYS, owner, ARGV[8]) end
elseif queueing == '1' then
  -- After the last moment the script does not join the queue, because the caller may have stopped waiting.
  local last = tonumber(ARGV[5])
  if last > 0 and at > last then return {-7, at} end
  -- If another process already waits as this owner, that waiter's place and registration stay. The registration is read
  -- before the first write: if KEYS 4 has another type, the script fails here, and leaves no place.
  local known = queue.registered(KEYS, owner)
  if not redis.call('zscore', KEYS[3], owner) then
    local due = at + wait
    local tail = redis.call('lindex', KEYS[2], -1)
    if tail then
      local before = tonumber(redis.call('zscore', KEYS[3], tail) or 0)
      -- If the tail is ours and has no room, no waiter of Java is ahead, and no room is needed.
      if not queue.ours(tail) or before >= due + 1 then due = due + queue.room(KEYS, at, wait) end
    end
    redis.call('zadd', KEYS[3], stamped(due, at), owner)
    redis.call('rpush', KEYS[2], owner)
  end
  if not known then queue.register(KEYS, owner, ARGV[8]) end
end
return {redis.call('pttl', KEYS[1]), at}
