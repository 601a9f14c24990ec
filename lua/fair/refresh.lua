-- For many locks: sets the deadlines of a client's waiters again, repairs the queues, and serves the head of each queue
-- whose lock is free. Terms: `queue.lua`.
-- KEYS   4 per lock: hash, queue, deadlines, registrations.
-- ARGV   1 wait   2 first lease   3 publish command   4 LONG   5 LEASE   6 GRACE (see `queue.lua`).
--        Then for each lock: CHANNELS; number of waiters; 1 if others may acquire as the owner of one of these waiters,
--        else 0; for each waiter the `at` of the last reply about it (0 = none) and its owner; for each waiter its
--        registration.
-- Reply  {at, answers ..}; at = the server's time in ms. Four answers per lock:
--        1. 1 = the lock was passed on to the head; 2 = the head must acquire or confirm within GRACE, or serving it
--           failed; 0 = nobody was served.
--        2. the lock's PTTL.
--        3. for how many ms no deadline passes; 0 = unknown.
--        4. 1 = all waiters of ARGV for this lock are in the queue, and hold nothing. Otherwise a list with one number
--           per waiter: 1 = it is in the queue; n > 1 = the lock was passed on to it, with n ms left; 0 = neither (the
--           waiter's owner may hold the lock by another acquire).
--        If a lock failed: the server's error, 0, 0, 1.
-- O(k log w) for k waiters in ARGV and w in the queue. O(w) if ARGV has no waiter of the lock, if a waiter of Java is
-- in the queue, or if a waiter of ours is dead. Idempotent. A failed lock does not stop the others.

local wait = tonumber(ARGV[1])
local now = redis.call('time')
local at = now[1] * 1000 + math.floor(now[2] / 1000)

-- Registrations are refreshed in the first 4 s of every 16 s, and whenever a lock with waiters in ARGV takes the slow
-- path (`mend.lua`). Every live client sends a refresh in these 4 s. The hash expires 60 s later, so it lives for at
-- least 40 s after the last refresh by any client.
local looks_after = at % 16000 < 4000

-- Returns nil if the slow path is needed, else for how many ms no deadline passes. For the fast path, all waiters in
-- this queue must seem to be ours, to wait for this lock, to be alive and to have no room.
local function quiet_for(keys)
  if not only_ours(keys) then return nil end
  -- Numbers are passed as text: the server would write each with 17 digits, which costs as much as the command.
  local first = redis.call('zrange', keys[3], '0', '0', 'withscores')
  local least = tonumber(first[2] or nil)
  -- `only_ours` compares counts, so a registration that is left over may hide a waiter of Java. The deadline of such a
  -- waiter is soon the first or the last, and deadlines of Java have no fraction.
  if not least or least <= at or least % 1 == 0 then return nil end
  -- The last deadline, if ours, is checked only while `looks_after`. Until then a dead waiter with needless room may
  -- stay. If that waiter is the head and the lock is free, `queue.serve` removes it sooner.
  local last = redis.call('zrange', keys[3], '-1', '-1')[1]
  if looks_after or string.byte(last, 15) ~= 56 then
    local most = tonumber(redis.call('zscore', keys[3], last))
    if most >= at + wait + 1 or most % 1 == 0 then return nil end
  end
  return math.floor(least) - at
end

-- The fast path: sets the deadlines of the waiters in `places`. Returns the set of those in the queue; nil = all are.
local function set_own(key, places)
  -- The deadline is text, because converting a number for each waiter would cost more than all else here.
  local due, set = string.format('%.17g', stamped(at + wait, at)), 0
  for i = 1, #places, 2 do places[i] = due end
  for i = 1, #places, 200 do
    set = set + redis.call('zadd', key, 'xx', 'ch', unpack(places, i, math.min(i + 199, #places)))
  end
  if 2 * set == #places then return nil end
  -- Some waiters are not in the queue, or have this deadline already.
  local queued, are_all = {}, true
  for i = 2, #places, 2 do
    local due = redis.call('zscore', key, places[i])
    queued[places[i]], are_all = due or nil, are_all and due
  end
  return not are_all and queued or nil
end

-- Refreshes the waiters of one lock, and serves the head if the lock is free. `places`: `at` of the last reply, owner,
-- .. as in ARGV. Returns the four answers about the lock.
local function refresh(keys, channels, places, nonces, is_shared)
  local quiet, queued, served = places[1] and quiet_for(keys), nil, 0
  if quiet then
    queued = set_own(keys[3], places)
  else
    local known = {}
    for i = 1, #places, 2 do known[places[i + 1]] = tonumber(places[i]) end
    is_free(keys)
    load_queue(ARGV[4], ARGV[5], ARGV[6], channels)
    load_mend()
    queued = mend.set(keys, known, at, wait)
  end
  if places[1] and (looks_after or not quiet) then
    load_mend()
    mend.register(keys, places, nonces, queued)
  end
  -- `queue.head` removes dead heads. It runs after the refresh, so that no live waiter is removed.
  if not quiet then queue.head(keys, at, wait, ARGV[3]) end

  local left = redis.call('pttl', keys[1])
  if left == -2 then
    load_queue(ARGV[4], ARGV[5], ARGV[6], channels)
    served = queue.serve(keys, at, wait, ARGV[2], ARGV[3])
    if type(served) == 'table' then served = 2 end
  end
  -- If all waiters are in the queue, nobody was served, and no owner is shared, none of the waiters holds the lock.
  if not queued and served == 0 and not is_shared then return served, left, quiet, 1 end
  load_mend()
  return served, left, quiet or 0, mend.answers(keys[1], places, nonces, queued)
end

local key, arg, out = 0, 7, {at}
while arg <= #ARGV do
  local keys, channels = {KEYS[key + 1], KEYS[key + 2], KEYS[key + 3], KEYS[key + 4]}, ARGV[arg]
  local waiters, is_shared = tonumber(ARGV[arg + 1]), ARGV[arg + 2] == '1'
  local second = arg + 3 + 2 * waiters
  -- One table constructor, because a table that grows step by step costs more than its content.
  local places, nonces = {unpack(ARGV, arg + 3, second - 1)}, {unpack(ARGV, second, second + waiters - 1)}
  key, arg = key + 4, second + waiters

  local ok, served, left, quiet, answers = pcall(refresh, keys, channels, places, nonces, is_shared)
  if not ok then
    local failed = served
    served, left, quiet, answers = type(failed) == 'table' and failed.err or tostring(failed), 0, 0, 1
  end
  local n = #out
  out[n + 1], out[n + 2], out[n + 3], out[n + 4] = served, left, quiet, answers
end
return out
