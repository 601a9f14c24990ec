-- Waiters of ours are alive: set their deadlines anew; mend what is broken in their queues; serve the head where
-- the lock is free. For many locks.
-- KEYS   4 a lock: hash, queue, deadlines, the waiters of ours
-- ARGV   1 own wait in ms   2 first lease in ms of a lock that is passed on   3 publish command
--        4 Redisson's fairLockWaitTimeout in ms   5 the watchdog's lease in ms
--        then for every lock: prefix of the waiters' channels, how many waiters; for each: owner, the `at` of its last
--        answer (0 = none), what it is registered by
-- Reply  {at, answers ..}; for every lock three: 1 when somebody was served, else 0; the ms left of its lease as PTTL gives
--        them; for so many ms nobody's deadline ends, 0 = unknown; or a text, the server's reason for failing, 0 and 0; then
--        for every waiter: 1 it stands in the queue, 0 it does not, or its owner is in by another hold than its own, n > 1 it
--        was passed the lock, with n ms left
-- O(k log w) for k waiters named of w, whoever else waits; O(w) where none is named, a waiter of Java's has a place, or one of
-- ours is dead.
-- Idempotent. One bad lock does not stop the others. `at` = the server's time in ms.

local wait, first_lease, publish = tonumber(ARGV[1]), ARGV[2], ARGV[3]
local now = redis.call('time')
local at = now[1] * 1000 + math.floor(now[2] / 1000)
local out = {at}

-- Registrations are looked after in the first 4 s of every 16 s, and where all places are read: whoever lives refreshes in those,
-- and so the hash of waiters outlives the last refresh by 40 s at the least.
local looks_after = at % 16000 < 4000

-- Adds to a sorted set, or with `xx` sets only what is there; `new`: score, member, score, member, ..; returns how many are
-- another score's now.
local function add_all(key, new, xx)
  local changed = 0
  for i = 1, #new, 200 do
    local last = math.min(i + 199, #new)
    if xx then
      changed = changed + redis.call('zadd', key, 'xx', 'ch', unpack(new, i, last))
    else
      redis.call('zadd', key, unpack(new, i, last))
    end
  end
  return changed
end

-- Sets the deadlines of the waiters that are alive, and reads nobody else's. Returns who stands in the queue, and for how long
-- nobody's deadline ends. Does nothing and returns nil where that is not enough: among waiters of Java, where one is dead or has
-- too much room.
local function set_own(keys, owners, known)
  if not owners[1] or not only_ours(keys) then return nil end
  local first = redis.call('zrange', keys[3], 0, 0, 'withscores')
  local last = redis.call('zrange', keys[3], -1, -1, 'withscores')
  local least = tonumber(first[2] or nil)
  if not least or least <= at or tonumber(last[2]) >= at + wait + 1 then return nil end
  -- A deadline of Java's that counts hide is soon the first or the last of all, and has no fraction.
  if least % 1 == 0 then return nil end
  -- As text: made of the number anew for each, it would cost more than all else here.
  local due, new = string.format('%.17g', stamped(at + wait, at)), {}
  for i = 1, #owners do
    new[2 * i - 1], new[2 * i] = due, owners[i]
  end
  local queued, quiet = known, math.floor(least) - at
  if add_all(keys[3], new, true) < #owners then
    -- Some have left meanwhile, or have this deadline already.
    queued = {}
    for _, owner in ipairs(owners) do
      queued[owner] = redis.call('zscore', keys[3], owner) or nil
    end
  end
  return queued, quiet
end

-- Sets the deadlines. `known`: the waiters that are alive, each with the `at` of its last answer. Returns who stands in
-- the queue.
local function set(keys, known)
  local all = redis.call('lrange', keys[2], 0, -1)
  local flat = redis.call('zrange', keys[3], 0, -1, 'withscores')
  local scores, queued, new = {}, {}, {}
  for i = 1, #flat, 2 do scores[flat[i]] = tonumber(flat[i + 1]) end

  -- Of the one ahead: its deadline as it was, and as it is now.
  local was, is, ahead = nil, nil, queue.nobody_ahead()
  for _, owner in ipairs(all) do
    local due = scores[owner]
    local set, second = due, queued[owner]
    queued[owner] = true
    if second then
      -- A waiter of Java queues a second time when its deadline was lost. The second entry of a dead one would be moved along
      -- for ever.
      redis.call('lrem', keys[2], -1, owner)
      due, set = was, is
    elseif queue.ours(owner) and not known[owner] and due and queue.life(due, at, wait) <= 0 then
      -- The waiter is dead, and leaves the queue wherever it stands. The one behind it now stands behind the one ahead of it,
      -- or behind the lock.
      queued[owner] = nil
      redis.call('lrem', keys[2], 1, owner)
      redis.call('hdel', keys[4], owner)
      set = is or at + math.max(0, redis.call('pttl', keys[1]))
    elseif queue.ours(owner) or known[owner] then
      -- An owner of Java's that waits by a client of ours is kept as one of ours.
      local last = known[owner]
      if last or not due then
        local had = last and due and last > 0 and math.floor(due) - last - wait
        set = queue.stamped(at + wait + queue.needed(ahead, wait, had), at)
      end
    else
      local gap = due and was and due - was
      if gap then
        set = is and is + gap or due
      elseif not due then
        -- With nobody ahead a short one, as in `head`.
        set = is and is + queue.LONG or at + wait
      end
      queue.count_java(ahead, gap, due and due - at)
    end
    if queued[owner] and not second and set ~= due then
      new[#new + 1] = set
      new[#new + 1] = owner
    end
    was, is = due, set
  end
  add_all(keys[3], new)
  for owner in pairs(scores) do
    if not queued[owner] then redis.call('zrem', keys[3], owner) end
  end
  -- Redisson takes a dead waiter of ours out of the queue without knowing where it is registered. One that is left there would
  -- make up for a waiter of Java's in `only_ours`.
  local ours = 0
  for owner in pairs(queued) do
    if queue.ours(owner) or known[owner] then ours = ours + 1 end
  end
  if redis.call('hlen', keys[4]) > ours then
    for _, owner in ipairs(redis.call('hkeys', keys[4])) do
      if not queued[owner] then redis.call('hdel', keys[4], owner) end
    end
  end
  return queued
end

-- Was the lock passed to the waiter that is registered by this, or did others come in as its owner?
local function passed(hash, owner, count, nonce)
  load_holds()
  local ids, id = holds.listed(hash, owner), string.match(nonce, '[!=](.*)$')
  if id then return holds.is_counted(ids, id) end
  return holds.unlisted(tonumber(count) or 0, ids) > 0
end

-- What these owners have in a hash, each at its index.
local function fields(hash, owners)
  if #owners > 0 and #owners <= 200 then return redis.call('hmget', hash, unpack(owners)) end
  local out = {}
  for from = 1, #owners, 200 do
    local found = redis.call('hmget', hash, unpack(owners, from, math.min(from + 199, #owners)))
    for i = 1, #found do out[from + i - 1] = found[i] end
  end
  return out
end

local key, arg = 0, 6
while arg <= #ARGV do
  local keys, channels = {KEYS[key + 1], KEYS[key + 2], KEYS[key + 3], KEYS[key + 4]}, ARGV[arg]
  local owners, known, nonces = {}, {}, {}
  for i = 1, tonumber(ARGV[arg + 1]) do
    owners[i] = ARGV[arg + 3 * i - 1]
    known[owners[i]] = tonumber(ARGV[arg + 3 * i])
    nonces[i] = ARGV[arg + 3 * i + 1]
  end
  key, arg = key + 4, arg + 2 + 3 * #owners

  local answers = {}
  local ok, failed = pcall(function()
    local queued, quiet = set_own(keys, owners, known)
    local read_all = not queued
    if read_all then
      load_queue(ARGV[4], ARGV[5], channels)
      queued = set(keys, known)
    end
    -- The hash of waiters is gone where nobody refreshed it for long: they are registered anew.
    if owners[1] and (read_all or looks_after) then
      local known_by = fields(keys[4], owners)
      for i, owner in ipairs(owners) do
        if not known_by[i] and queued[owner] then redis.call('hset', keys[4], owner, nonces[i]) end
      end
      redis.call('pexpire', keys[4], REGISTERED)
    end
    -- After the refresh, so that no waiter is taken out that is alive.
    if read_all then queue.head(keys, at, wait, publish) end
    answers[1], answers[2], answers[3] = 0, redis.call('pttl', keys[1]), quiet or 0
    if answers[2] == -2 then
      load_queue(ARGV[4], ARGV[5], channels)
      local served = queue.serve(keys, at, wait, first_lease, publish)
      answers[1] = type(served) == 'table' and 1 or served
    end
    local counts = fields(keys[1], owners)
    for i, owner in ipairs(owners) do
      local answer = queued[owner] and 1 or 0
      if counts[i] then
        answer = 0
        if passed(keys[1], owner, counts[i], nonces[i]) then answer = math.max(2, redis.call('pttl', keys[1])) end
      end
      answers[i + 3] = answer
    end
  end)
  if not ok then
    local text = type(failed) == 'table' and failed.err or tostring(failed)
    answers = {text, 0, 0}
    for i = 1, #owners do answers[i + 3] = 1 end
  end
  for i = 1, #answers do out[#out + 1] = answers[i] end
end
return out
