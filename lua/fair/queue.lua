-- Functions of the fair lock's scripts, in front of each of them. More terms: `common/holds.lua`.
--
-- Terms. Ours = of this crate; Java = Redisson. A waiter's place is its entry in the queue (key 2, a list of owners,
-- the head first) and its deadline (key 3, a sorted set, in ms of the server's time). A waiter loses its place when the
-- deadline passes. If the lock is free, a script serves the head: a head of ours becomes the owner, so the lock is
-- passed on. A head of Java is only notified. A lock that was passed on has the first lease until its owner sets another.
--
-- In all functions: keys = {1 the lock's hash, 2 its queue, 3 its deadlines, 4 its registrations}; at = the server's
-- time in ms. Settings, in the order of most scripts' ARGV, times in ms:
-- - wait: how long a place of ours lasts without a refresh. first lease: the limit of a first lease.
-- - publish command: PUBLISH or SPUBLISH. LONG: Redisson's fairLockWaitTimeout.
-- - LEASE: the watchdog's lease, for which a new holder may keep the lock.
-- - GRACE: how soon a head that was served must acquire or confirm (see `serve`).
-- - CHANNELS: prefix of the waiters' channels.
--
-- Registrations. Each waiter of ours is registered in a hash (key 4), with a nonce that no other client knows. Each
-- lock has its own hash, because names such as `x` and `{x}` share a queue but not their waiters. Forms:
-- - `nonce`: the owner's only hold. A message with the nonce proves that a script has passed the lock on.
-- - `nonce=id`: the owner was used before, and only by our client. The waiter's hold is listed under this id.
-- - `!id`: others may act as this owner. A message proves nothing, so the waiter then queries the server.
--
-- Deadlines. Java sets a waiter's deadline once: the deadline of the waiter ahead, plus the new waiter's own wait. A
-- waiter of Java that leaves subtracts its own wait from every deadline behind it. So a deadline of ours is the sum of
-- `at`, `wait` and room. Room is extra time for what Java's waiters ahead may subtract; without such waiters it is 0.
-- Every refresh sets our deadlines again. If the client stops, a deadline without room passes within `wait`. With room,
-- the deadline's fraction (below) shows that the client has stopped.
--
-- Bound. No deadline is later than one lease plus the waits of Java's waiters up to that position, as with Redisson
-- alone. So a dead waiter of Java blocks the queue for no longer than with Redisson alone. `needed` limits the room for
-- this, `count_java` limits waits that are unknown, and `nearer` makes deadlines earlier when a waiter leaves.
--
-- Fractions. The fraction of our deadline says when the deadline was set: in 16ths of a second, mod 4096, as 4096ths of
-- a ms. Java subtracts whole milliseconds, so the fraction stays. The fraction shows whether a waiter is alive, however
-- much room the waiter has. From 2^42 on (in 2109) a deadline has no fraction: its waiter counts as alive until then.

local queue

-- The hash of registrations expires this many ms after it was last written.
local REGISTERED = 60000

-- The deadline `due`, with the time `at` as its fraction. The fraction is never 0, because 0 means an unknown time.
local function stamped(due, at)
  if due >= 2 ^ 42 then return math.floor(due) end
  return math.floor(due) + math.max(1, math.floor(at / 62.5) % 4096) / 4096
end

-- In `fair/many`: for each queue (key 2), the waiters that have left but are still in the list. In other scripts nil.
local leavers

-- True if the queue has as many entries as deadlines and registrations. Then all waiters seem to be ours and to wait
-- for this lock, so no deadline depends on another. (A leftover registration may hide another waiter.)
local function only_ours(keys)
  local places = redis.call('llen', keys[2])
  local left = leavers and leavers[keys[2]]
  if left then places = places - #left end
  return redis.call('hlen', keys[4]) == places and redis.call('zcard', keys[3]) == places
end

-- The positions of these owners in a list, from 0. Searches from the end until all are found.
local function places(list, owners)
  local at, wanted, missing = {}, {}, #owners
  for _, owner in ipairs(owners) do wanted[owner] = true end
  local behind = redis.call('llen', list)
  while missing > 0 and behind > 0 do
    local first = math.max(0, behind - 1000)
    for i, owner in ipairs(redis.call('lrange', list, first, behind - 1)) do
      if wanted[owner] then at[owner], missing = first + i - 1, missing - 1 end
    end
    behind = first
  end
  return at
end

-- Removes the waiters in `leavers` from their lists. Fewer than 16 waiters are searched from the list's end, where the
-- waiters of a process that ends usually are. More are found in one pass through the list.
local function take_out()
  local all = leavers
  if not all or not next(all) then return end
  leavers = {}
  for list, left in pairs(all) do
    local at, marked = #left >= 16 and places(list, left) or {}, false
    for _, owner in ipairs(left) do
      -- An entry to remove is overwritten with '', which is no owner. A server that is out of memory refuses LSET.
      local mark = at[owner] and redis.pcall('lset', list, at[owner], '')
      if mark and not mark.err then
        marked = true
      else
        redis.call('lrem', list, -1, owner)
      end
    end
    if marked then redis.call('lrem', list, 0, '') end
  end
end

-- True if the lock is free. Scripts also call this before their first write, so that they fail there while a cluster
-- moves the slot. Then the server refuses every missing key of the slot, even a key that the script itself has deleted,
-- which would stop the script halfway. The second key never exists, so the call always names a missing key.
local function is_free(keys)
  return redis.call('exists', keys[1], keys[4] .. ':none') == 0
end

-- Creates `queue`, without the settings that `load_queue` adds.
local function make_queue()
  -- Least time in ms before a silent waiter counts as dead. Every client refreshes its waiters within 2.7 s.
  local SILENT = 4000
  queue = {}

  -- The server's time in ms, for scripts that may have no `holds`.
  function queue.time()
    local now = redis.call('time')
    return now[1] * 1000 + math.floor(now[2] / 1000)
  end

  -- Our uuids are of version 8, Java's of version 4. The version is the 15th character; 56 = '8'.
  function queue.ours(owner)
    return string.byte(owner, 15) == 56
  end

  -- The registration of a waiter of ours; nil = the waiter is not ours, or waits for another lock with this queue.
  function queue.registered(keys, owner)
    return redis.call('hget', keys[4], owner) or nil
  end

  function queue.register(keys, owner, nonce)
    redis.call('hset', keys[4], owner, nonce)
    redis.call('pexpire', keys[4], REGISTERED)
  end

  -- Removes a waiter from the queue, at any position.
  function queue.remove(keys, owner)
    if redis.call('lindex', keys[2], 0) == owner then
      redis.call('lpop', keys[2])
    else
      redis.call('lrem', keys[2], 1, owner)
    end
    redis.call('zrem', keys[3], owner)
    redis.call('hdel', keys[4], owner)
  end

  -- Returns for how many ms a waiter of ours may still be silent before it counts as dead. For a deadline without a
  -- fraction, returns the time until the deadline. A fraction up to 64 s in the future means that the server's clock
  -- was set back: the deadline counts as set now.
  function queue.life(due, at, wait)
    if due % 1 == 0 then return due - at end
    local ticks = (math.floor(at / 62.5) - due % 1 * 4096) % 4096
    if ticks > 3072 then ticks = 0 end
    return math.max(wait, SILENT) - ticks * 62.5
  end

  function queue.notify(publish, owner, message)
    return redis.pcall(publish, queue.CHANNELS .. ':' .. owner, message)
  end

  -- An empty count of Java's waiters ahead of a position. `java`: true if there are any. `sum`: of the known waits.
  -- `low`, `high`: bounds for the sum of the unknown waits. `beyond`: what they may subtract besides their waits.
  function queue.nobody_ahead()
    return {sum = 0, low = 0, high = 0, beyond = 0, java = false}
  end

  -- Counts one more waiter of Java. `gap`: this waiter's deadline less the deadline ahead. The gap is the wait; if the
  -- gap is negative, the wait is unknown. `left`, used if there is no gap: the time until the deadline, at most a lease
  -- plus the wait. If `left` is near LONG, the wait counts as LONG, because the waiter has probably called `lock()`.
  -- Java's `tryLock` without a lease sets its deadline by the bare number of its wait, whatever the unit, but subtracts
  -- the wait in ms when it gives up. So a gap below 1000 may mean seconds.
  function queue.count_java(ahead, gap, left)
    ahead.java = true
    if gap and gap >= 0 then
      ahead.sum = ahead.sum + gap
      if gap < 1000 then ahead.beyond = ahead.beyond + gap * 1000 end
    elseif gap then
      ahead.high, ahead.beyond = ahead.high + queue.LONG, ahead.beyond + queue.LEASE
    else
      local low = left and math.max(left, 0) or queue.LONG
      if queue.LONG > queue.LEASE and low > queue.LONG / 2 and low < queue.LONG + 2 * queue.LEASE then low = queue.LONG end
      ahead.low, ahead.high = ahead.low + low, ahead.high + math.max(low, queue.LONG)
      -- `beyond` matters only if it exceeds the unknown waits, because `needed` takes the larger of the two.
      ahead.beyond = ahead.beyond + queue.LEASE
    end
  end

  -- True for a head of Java (position 1) with a deadline of `at + GRACE` at most: probably `serve` notified the head
  -- and set this deadline. So neither the time until this deadline nor the next waiter's distance to it is a wait.
  function queue.is_told(i, owner, due, at)
    return i == 1 and due and not queue.ours(owner) and due <= at + queue.GRACE
  end

  -- `left` for `count_java`; nil = the deadline does not show the wait. `told`: the waiter ahead was notified, and this
  -- deadline still includes the old deadline of the waiter ahead. So at most LONG counts.
  function queue.rest(i, owner, due, at, told)
    if not due or queue.is_told(i, owner, due, at) then return nil end
    return told and math.min(due - at, queue.LONG) or due - at
  end

  -- The room that a waiter of ours needs behind the waiters in `ahead`. `had`: its earlier room, less what was
  -- subtracted since. `had` may include a wait that was known then and is unknown now.
  function queue.needed(ahead, wait, had)
    if not ahead.java then return 0 end
    local unknown = math.min(math.max((had or 0) - ahead.sum, ahead.low), ahead.high)
    local beyond = math.min(ahead.beyond, queue.LEASE - wait)
    -- At least 2 s: the room shows `acquire` that a waiter of Java is ahead. A refresh comes every second meanwhile.
    return math.max(ahead.sum + math.max(unknown, beyond), SILENT / 2)
  end

  -- The room that a waiter of ours needs at the queue's end.
  function queue.room(keys, at, wait)
    local scores, flat = {}, redis.call('zrange', keys[3], 0, -1, 'withscores')
    for i = 1, #flat, 2 do scores[flat[i]] = tonumber(flat[i + 1]) end
    local ahead, had, was, told = queue.nobody_ahead(), 0, nil, false
    for i, owner in ipairs(redis.call('lrange', keys[2], 0, -1)) do
      local due = scores[owner]
      if not queue.ours(owner) then
        queue.count_java(ahead, due and was and due - was, queue.rest(i, owner, due, at, told))
        if due and was and due > was then had = had + due - was end
      elseif due then
        -- The room of this waiter of ours covers all waits ahead of the waiter, so the sum starts again from this room.
        had = due - at - wait
      end
      told = queue.is_told(i, owner, due, at)
      was = not told and due or nil
    end
    return queue.needed(ahead, wait, had)
  end

  -- Called when the waiter ahead of position `from` (0 = the head) leaves. Makes the deadlines of Java's waiters from
  -- there on, up to the first waiter of ours, earlier by the same `by` ms. Limits for the first new deadline:
  -- - `least`: the earliest value. An earlier deadline is moved to `least`.
  -- - `gone`: the deadline of a head that leaves. The latest value is `least` plus the first waiter's distance to
  --   `gone`.
  function queue.nearer(keys, from, by, least, gone)
    while true do
      local owner = redis.call('lindex', keys[2], from)
      if not owner or queue.ours(owner) then return end
      local due = redis.call('zscore', keys[3], owner)
      if due then
        if gone then by = math.max(by, due - least - math.max(0, due - gone)) end
        if least then by = math.min(by, due - least) end
        least, gone = nil, nil
        redis.call('zincrby', keys[3], -by, owner)
      end
      from = from + 1
    end
  end

  -- Removes a head that gets the lock, and makes the deadlines of Java's waiters right behind it earlier. The first of
  -- these deadlines is at least LEASE from now.
  function queue.advance(keys, owner, at, wait)
    local due = redis.call('zscore', keys[3], owner)
    queue.remove(keys, owner)
    queue.nearer(keys, 0, wait, at + queue.LEASE, due)
  end

  -- True for a deadline of ours with room but without a fraction: nothing shows when it was set.
  function queue.is_vague(owner, due, at, wait)
    return queue.ours(owner) and due % 1 == 0 and due > at + wait
  end

  -- Removes heads that are dead or whose deadline has passed. Returns the first waiter for this lock and its deadline;
  -- nil = nobody. A head without a deadline, or with a vague one, would block the queue, so it gets a short deadline.
  function queue.head(keys, at, wait, publish)
    local from = 0
    while true do
      local owner = redis.call('lindex', keys[2], from)
      if not owner then
        -- The queue is empty: deadlines that are left belong to nobody.
        if from == 0 then redis.call('del', keys[3], keys[4]) end
        return nil
      end
      local due = tonumber(redis.call('zscore', keys[3], owner) or nil)
      if not due or queue.is_vague(owner, due, at, wait) then
        due = stamped(at + wait, at)
        redis.call('zadd', keys[3], due, owner)
      end
      if due <= at or queue.ours(owner) and queue.life(due, at, wait) <= 0 then
        queue.remove(keys, owner)
        if queue.ours(owner) and from == 0 then
          queue.nearer(keys, 0, 0, at + math.max(0, redis.call('pttl', keys[1])), due)
        end
        -- If the waiter is alive after all, the message makes it query the server and queue again.
        queue.notify(publish, owner, '0')
      elseif queue.ours(owner) and not queue.registered(keys, owner) then
        -- This waiter waits for another lock.
        from = from + 1
      else
        return owner, due
      end
    end
  end

  -- True if no client is subscribed to this waiter's channel: the client is dead, cut off, or about to subscribe. Only
  -- for waiters of ours, because they subscribe at this server. If the server refuses the query, the result is false.
  function queue.is_absent(publish, owner)
    local ask = string.lower(publish) == 'spublish' and 'shardnumsub' or 'numsub'
    return redis.pcall('pubsub', ask, queue.CHANNELS .. ':' .. owner)[2] == 0
  end

  -- Serves the head. The lock must be free.
  -- - A head of ours becomes the owner. The first lease is `lease` ms at most if all waiters are ours and the head's
  --   client is subscribed. Otherwise it is GRACE at most, and the head must confirm by an attempt. The message to the
  --   head carries the first lease.
  -- - A head of Java is notified, and acquires by its own attempt. Its deadline becomes `at + GRACE` at most.
  --
  -- Returns 0 = nobody waits; 1 = passed on, without the limit of GRACE; 2 = the head must acquire or confirm within
  -- GRACE; or the server's error.
  function queue.serve(keys, at, wait, lease, publish)
    local owner, due = queue.head(keys, at, wait, publish)
    if not owner then return 0 end
    local nonce = queue.registered(keys, owner)
    if not nonce then
      local sent = queue.notify(publish, owner, '0')
      if type(sent) == 'table' and sent.err then return sent end
      -- Behind waiters for another lock, the deadline stays: their refresh needs its distance to the deadline ahead.
      local is_first = redis.call('lindex', keys[2], 0) == owner
      if is_first and due > at + queue.GRACE then redis.call('zadd', keys[3], at + queue.GRACE, owner) end
      return 2
    end
    local served = 1
    lease = tonumber(lease)
    if not only_ours(keys) or queue.is_absent(publish, owner) then
      lease, served = math.min(lease, queue.GRACE), 2
    end
    -- A dead head must not block the lock beyond its deadline. `life` is only for owners of ours: an owner of Java that
    -- waits through a client of ours may have a deadline that Java set.
    local most = queue.ours(owner) and math.min(due - at, queue.life(due, at, wait)) or due - at
    lease = math.min(lease, math.max(1, math.floor(most)))
    -- If the registration has an id (`!id`, `nonce=id`), the hold is listed. Otherwise it is only counted.
    local id = string.match(nonce, '[!=](.*)$')
    if id then
      redis.call('hset', keys[1], owner, 1, owner .. ':holds', ',' .. id)
    else
      redis.call('hset', keys[1], owner, 1)
    end
    local leased = redis.pcall('pexpire', keys[1], lease)
    if type(leased) == 'table' and leased.err then
      -- The grant is undone, because the lock would never expire.
      redis.call('del', keys[1])
      return leased
    end
    queue.advance(keys, owner, at, wait)
    local sent = queue.notify(publish, owner, lease .. ' ' .. nonce)
    if type(sent) == 'table' and sent.err then return sent end
    return served
  end
end

-- Creates `queue` if needed, and sets the settings, which may differ between the steps of one command. Acquires and
-- releases without waiters do not call this, to save its cost.
local function load_queue(long, lease, grace, channels)
  if not queue then make_queue() end
  queue.LONG, queue.LEASE, queue.GRACE, queue.CHANNELS = tonumber(long), tonumber(lease), tonumber(grace), channels
end
