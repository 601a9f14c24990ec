-- Refresh the deadlines of our live waiters, repair their queues, and serve the head of each queue whose lock is free. For many
-- locks.
-- KEYS   4 per lock: hash, queue, deadlines, our waiters
-- ARGV   1 own wait in ms   2 first lease in ms of a lock that is passed on   3 publish command
--        4 Redisson's fairLockWaitTimeout in ms   5 the watchdog's lease in ms   6 grace in ms
--        Then for each lock: prefix of the waiters' channels; number of waiters; 1 if others may acquire as the owner of one,
--        else 0; for each waiter the `at` of its last answer (0 = none) and its owner; for each waiter its registration
-- Reply  {at, answers ..}; at = the server's time in ms. Four answers per lock:
--        1. 1 = the lock was passed on; 2 = the head was served, and must come within the grace time; 0 = neither
--        2. the lock's PTTL
--        3. time in ms in which no deadline ends; 0 = unknown
--        4. 1 = all its waiters are in the queue. Otherwise a list with one entry per waiter: 1 = in the queue; 0 = not in the
--        queue, or its owner holds the lock by another hold; n > 1 = it holds the lock, with n ms left
--        If a lock failed: the server's error, 0, 0, 1
-- O(k log w) for k named waiters of w. O(w) if no waiter is named, if a waiter of Java is in the queue, or if one of ours is dead.
-- Idempotent. A failed lock does not stop the others.

local wait = tonumber(ARGV[1])
local now = redis.call('time')
local at = now[1] * 1000 + math.floor(now[2] / 1000)

-- Registrations are refreshed in the first 4 s of every 16 s, and on every slow path that names waiters. Every live
-- client sends a refresh in these 4 s. So the hash of waiters lives for at least 40 s after the last refresh by any
-- client.
local looks_after = at % 16000 < 4000

-- The condition for the fast path: all waiters in this queue seem to be ours, to wait for this lock, to be alive, and
-- to have no room that they do not need. Returns for how many ms no deadline ends; nil = use the slow path.
local function quiet_for(keys)
  if not only_ours(keys) then return nil end
  -- Numbers are passed as text, here and below. The server would write each with 17 digits, which costs as much as the command.
  local first = redis.call('zrange', keys[3], '0', '0', 'withscores')
  local least = tonumber(first[2] or nil)
  -- `only_ours` compares counts, so a registration that is left over may hide a waiter of Java. Soon that waiter's
  -- deadline is the first or the last, and it has no fraction.
  if not least or least <= at or least % 1 == 0 then return nil end
  -- A dead waiter of ours with too much room may stay until the next `looks_after`. As the head of a free lock it is
  -- removed before that.
  local last = redis.call('zrange', keys[3], '-1', '-1')[1]
  if looks_after or string.byte(last, 15) ~= 56 then
    local most = tonumber(redis.call('zscore', keys[3], last))
    if most >= at + wait + 1 or most % 1 == 0 then return nil end
  end
  return math.floor(least) - at
end

-- Sets the deadlines of the live waiters, and reads no others. Returns the set of waiters in the queue; nil = all are.
local function set_own(key, places)
  -- As text, because converting the number for each waiter would cost more than all else here.
  local due, set = string.format('%.17g', stamped(at + wait, at)), 0
  for i = 1, #places, 2 do places[i] = due end
  for i = 1, #places, 200 do
    set = set + redis.call('zadd', key, 'xx', 'ch', unpack(places, i, math.min(i + 199, #places)))
  end
  if 2 * set == #places then return nil end
  -- Some have left, or have this deadline already.
  local queued, are_all = {}, true
  for i = 2, #places, 2 do
    local due = redis.call('zscore', key, places[i])
    queued[places[i]], are_all = due or nil, are_all and due
  end
  return not are_all and queued or nil
end

-- Refreshes one lock's waiters, and serves its head if it is free. `places`: last answer, owner, last answer, owner, ..
-- Returns the four answers about it.
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
  -- `head` removes dead and expired heads. It runs after the refresh, so that no live waiter is removed.
  if not quiet then queue.head(keys, at, wait, ARGV[3]) end

  local left = redis.call('pttl', keys[1])
  if left == -2 then
    load_queue(ARGV[4], ARGV[5], ARGV[6], channels)
    served = queue.serve(keys, at, wait, ARGV[2], ARGV[3])
    if type(served) == 'table' then served = 2 end
  end
  -- A waiter in the queue holds nothing, unless others acquire as the same owner.
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
