-- Waiters of ours are alive: set their deadlines anew; mend what is broken in their queues; serve the head where
-- the lock is free. For many locks.
-- KEYS   4 a lock: hash, queue, deadlines, the waiters of ours
-- ARGV   1 own wait in ms   2 first lease in ms of a lock that is passed on   3 publish command
--        4 Redisson's fairLockWaitTimeout in ms   5 the watchdog's lease in ms
--        then for every lock: prefix of the waiters' channels, how many waiters, 1 where others may come in as the owner of one
--        (else 0); for each waiter the `at` of its last answer (0 = none) and its owner; then for each what it is registered by
-- Reply  {at, answers ..}; for every lock four: 1 when somebody was served, else 0; the ms left of its lease as PTTL gives
--        them; for so many ms nobody's deadline ends, 0 = unknown; 1 = all its waiters stand in the queue, else for every waiter:
--        1 it does, 0 it does not, or its owner is in by another hold than its own, n > 1 it was passed the lock, with n ms
--        left. Or the server's reason for failing, 0, 0 and 1
-- O(k log w) for k waiters named of w, whoever else waits; O(w) where none is named, a waiter of Java's has a place, or one of
-- ours is dead.
-- Idempotent. One bad lock does not stop the others. `at` = the server's time in ms.

local wait = tonumber(ARGV[1])
local now = redis.call('time')
local at = now[1] * 1000 + math.floor(now[2] / 1000)

-- Registrations are looked after in the first 4 s of every 16 s, and where all places are read: whoever lives refreshes in those,
-- and so the hash of waiters outlives the last refresh by 40 s at the least.
local looks_after = at % 16000 < 4000

-- Does this queue look as if all that wait in it were waiters of ours for this lock, all alive and none with too much room? Then
-- returns for how long nobody's deadline ends.
local function quiet_for(keys)
  if not only_ours(keys) then return nil end
  -- Numbers as text, here and below: the server writes each out with 17 digits, which costs as much as the command.
  local first = redis.call('zrange', keys[3], '0', '0', 'withscores')
  local least = tonumber(first[2] or nil)
  -- A deadline of Java's that counts hide is soon the first or the last of all, and has no fraction.
  if not least or least <= at or least % 1 == 0 then return nil end
  -- One of ours that has too much room and is dead can wait until registrations are looked after: as the head it is dropped anyway.
  local last = redis.call('zrange', keys[3], '-1', '-1')[1]
  if looks_after or string.byte(last, 15) ~= 56 then
    local most = tonumber(redis.call('zscore', keys[3], last))
    if most >= at + wait + 1 or most % 1 == 0 then return nil end
  end
  return math.floor(least) - at
end

-- Sets the deadlines of the waiters that are alive, and reads nobody else's. Returns who stands in the queue; nil = all do.
local function set_own(key, places)
  -- As text: made of the number anew for each, it would cost more than all else here.
  local due, set = string.format('%.17g', stamped(at + wait, at)), 0
  for i = 1, #places, 2 do places[i] = due end
  for i = 1, #places, 200 do
    set = set + redis.call('zadd', key, 'xx', 'ch', unpack(places, i, math.min(i + 199, #places)))
  end
  if 2 * set == #places then return nil end
  -- Some have left meanwhile, or have this deadline already.
  local queued, are_all = {}, true
  for i = 2, #places, 2 do
    local due = redis.call('zscore', key, places[i])
    queued[places[i]], are_all = due or nil, are_all and due
  end
  return not are_all and queued or nil
end

-- Sets the deadlines of one lock's waiters, and serves its head where it is free. `places`: last answer, owner, last answer,
-- owner, .. Returns what the reply says of it.
local function refresh(keys, channels, places, nonces, is_shared)
  local quiet, queued, served = places[1] and quiet_for(keys), nil, 0
  if quiet then
    queued = set_own(keys[3], places)
  else
    local known = {}
    for i = 1, #places, 2 do known[places[i + 1]] = tonumber(places[i]) end
    is_free(keys)
    load_queue(ARGV[4], ARGV[5], channels)
    load_mend()
    queued = mend.set(keys, known, at, wait)
  end
  if places[1] and (looks_after or not quiet) then
    load_mend()
    mend.register(keys, places, nonces, queued)
  end
  -- After the refresh, so that no waiter is taken out that is alive.
  if not quiet then queue.head(keys, at, wait, ARGV[3]) end

  local left = redis.call('pttl', keys[1])
  if left == -2 then
    load_queue(ARGV[4], ARGV[5], channels)
    served = queue.serve(keys, at, wait, ARGV[2], ARGV[3])
    if type(served) == 'table' then served = 1 end
  end
  -- Who stands in the queue holds nothing, if nobody else comes in as the same owner.
  if not queued and served == 0 and not is_shared then return served, left, quiet, 1 end
  load_mend()
  return served, left, quiet or 0, mend.answers(keys[1], places, nonces, queued)
end

local key, arg, out = 0, 6, {at}
while arg <= #ARGV do
  local keys, channels = {KEYS[key + 1], KEYS[key + 2], KEYS[key + 3], KEYS[key + 4]}, ARGV[arg]
  local waiters, is_shared = tonumber(ARGV[arg + 1]), ARGV[arg + 2] == '1'
  local second = arg + 3 + 2 * waiters
  -- A table that is made at once is not made larger step by step, which would cost more than all that is put in.
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
