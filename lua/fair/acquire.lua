-- Take the lock if nobody is ahead, or once more for the same owner; else take a place in the queue.
-- KEYS   1 hash   2 queue   3 deadlines   4 prefix of the waiters' channels
-- ARGV   1 owner
--        2 lease in ms; coming in again, one that is longer now is left alone
--        3 hold count the owner is to have afterwards; 0 = unknown, count one up; -1 = unknown, and it must
--          hold nothing yet
--        4 0 = ask only, do not queue; 1 = queue; 2 = the owner has a place in the queue
--        5 own wait in ms   6 first lease in ms of a lock that is passed on   7 publish command
--        8 Redisson's fairLockWaitTimeout in ms   9 the watchdog's lease in ms
-- Reply  nil         held; the count stands and the lease runs from now
--        -2          held: it was passed on to this owner before (only for 2)
--        -3          the owner wanted to come in again but holds nothing any more
--        -4          it holds nothing and has no place in the queue any more (only for 2)
--        -6          the owner holds it already (only for count -1)
--        {ttl, at}   busy: the lease has so many ms left (-1 = without end, -2 = it is free, but others are ahead);
--                    at = the server's time in ms
-- Idempotent where ARGV 3 is above 0. Same state as Redisson's fair lock (protocol 9.3, 9.4), but for deadlines of ours.

local owner, want, turn = ARGV[1], tonumber(ARGV[3]), ARGV[4]
local wait, first_lease, publish = tonumber(ARGV[5]), ARGV[6], ARGV[7]
told(ARGV[8], ARGV[9])

-- A script is not rolled back. A lease that cannot be set must not leave a lock that never ends.
local function lease(undo)
  local leased = redis.pcall('pexpire', KEYS[1], ARGV[2])
  if type(leased) == 'table' and leased.err then
    undo()
    return leased
  end
end

local free = redis.call('exists', KEYS[1]) == 0
local count = not free and redis.call('hget', KEYS[1], owner)
if count then
  if turn == '2' and want <= 1 then
    -- A first lease is replaced by its own; one that is longer was promised since, and this is a late copy.
    local left = redis.call('pttl', KEYS[1])
    if left < tonumber(ARGV[2]) or left <= tonumber(first_lease) then
      redis.call('pexpire', KEYS[1], ARGV[2])
    end
    return -2
  end
  if want < 0 then return -6 end
  local before = count
  if want == 0 then
    redis.call('hincrby', KEYS[1], owner, 1)
  elseif tonumber(count) ~= want then
    redis.call('hset', KEYS[1], owner, want)
  end
  if redis.call('pttl', KEYS[1]) < tonumber(ARGV[2]) then
    return lease(function() redis.call('hset', KEYS[1], owner, before) end)
  end
  return nil
end
if want > 1 then return -3 end

local first, at = redis.call('lindex', KEYS[2], 0), nil
if first and first ~= owner then
  at = time()
  first = head(KEYS, at, wait, publish)
end
if free then
  if first == owner or (not first and turn ~= '2') then
    redis.call('hset', KEYS[1], owner, 1)
    local failed = lease(function() redis.call('del', KEYS[1]) end)
    if not failed and first then advance(KEYS, owner, at or time(), wait) end
    return failed
  end
  if first then serve(KEYS, at, wait, first_lease, publish) end
end

at = at or time()
if turn == '2' then
  if not redis.call('zscore', KEYS[3], owner) then
    local there = false
    for _, waiter in ipairs(redis.call('lrange', KEYS[2], 0, -1)) do
      there = there or waiter == owner
    end
    if not there then return -4 end
    redis.call('zadd', KEYS[3], stamped(at + wait + room(KEYS, at, wait), at), owner)
  end
elseif turn == '1' and not redis.call('zscore', KEYS[3], owner) then
  local due = at + wait
  local last = redis.call('lindex', KEYS[2], -1)
  if last then
    local before = tonumber(redis.call('zscore', KEYS[3], last) or 0)
    -- Up to here no waiter of Java can be ahead.
    if not ours(last) or before >= due + 1 then due = due + room(KEYS, at, wait) end
  end
  redis.call('zadd', KEYS[3], stamped(due, at), owner)
  redis.call('rpush', KEYS[2], owner)
end
return {redis.call('pttl', KEYS[1]), at}
