-- What the scripts of the fair lock share: put in front of each of them at build time. State and terms:
-- docs/wire-format.md.
--
-- Everywhere: keys = {1 the lock's hash, 2 its queue, 3 their deadlines, 4 the waiters of ours}, at = the server's time in
-- ms.
--
-- A waiter of ours is registered in a hash of its lock's own (key 4), with a nonce that nobody else knows: names that
-- share a queue (`x` and `{x}` do) share no waiters, and a message to it proves by the nonce that a script granted it the
-- lock. Where the owner is used again, its hold is listed by an id: `nonce=id` for an owner of ours alone; `!id`, without a
-- nonce, for one that others may act as: it asks when a message comes.
--
-- A deadline of Java's is that of the one ahead of it plus its own wait, set when it came. A deadline of ours (the
-- client's uuid is of version 8) is `at + wait + room`, set anew at every refresh: a waiter whose client stopped is out
-- of date after `wait`. `room` is there because a waiter of Java that goes takes its own wait off everybody behind it.
--
-- What bounds them all: nobody's deadline is further away than a lease, and the waits of Java's up to it. So it is where
-- Redisson is alone, and so no waiter of Java that died blocks the queue for longer than there. Therefore (1) only waits
-- that are known make room, and a lease at the most what may be taken off beyond them; (2) whoever of ours goes takes
-- along what it had pushed those of Java behind it away.
--
-- The fraction of a deadline of ours says when it was set, in 16ths of a second, mod 4096, in 4096ths: whole
-- milliseconds taken off it leave that alone, and so it shows whether a waiter lives, whatever room it has. Behind a wait
-- of Java's of over a century a deadline is too large for a fraction: such a waiter counts as alive until it ends.

local queue

-- Registered waiters outlive their last refresh by so much, in ms.
local REGISTERED = 60000

-- A deadline with the time when it was set, which is never 0: none means that nothing is said.
local function stamped(due, at)
  if due >= 2 ^ 42 then return math.floor(due) end
  return math.floor(due) + math.max(1, math.floor(at / 62.5) % 4096) / 4096
end

-- In a command of many steps: who has left a queue and stands in its list still, by the key of that; else nil.
local leavers

-- True where all that have a place in this queue are waiters of ours for this lock: then nobody's deadline hangs on another's.
local function only_ours(keys)
  local places = redis.call('llen', keys[2])
  local left = leavers and leavers[keys[2]]
  if left then places = places - #left end
  return redis.call('hlen', keys[4]) == places and redis.call('zcard', keys[3]) == places
end

-- Where these owners stand in a list, counted from 0; looks from the end until all are found.
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

-- Takes those who have left out of the lists. One is searched for from the end: where a process ends, its waiters are found there
-- more often than at the head. Many are found together, in one look through the list.
local function take_out()
  local all = leavers
  if not all or not next(all) then return end
  leavers = {}
  for list, left in pairs(all) do
    local at, marked = #left >= 16 and places(list, left) or {}, false
    for _, owner in ipairs(left) do
      -- No owner is the empty text. A server that is out of memory lets nothing be set.
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

-- Is the lock free? A script that writes asks so before its first write, together with a key that never is. Of a cluster's slot that
-- is being moved, the server lets nobody touch a key that is not there, not even one that the script itself has deleted (a queue goes
-- with its last waiter, a hash with its holder). That would stop it half way; so it is refused before, at either side.
local function is_free(keys)
  return redis.call('exists', keys[1], keys[4] .. ':none') == 0
end

-- Makes `queue`, without the settings that `load_queue` adds.
local function make_queue()
  -- Clients refresh at least every 2.2 s, whatever their `wait` is.
  local SILENT = 4000
  queue = {
    -- Set by `load_queue`: Redisson's fairLockWaitTimeout in ms (LONG); what a lock that was just taken may be held for, in
    -- ms: the watchdog's lease (LEASE); what the names of the waiters' channels begin with (CHANNELS).
  }

  -- The server's time in ms, for scripts that may have no `holds`.
  function queue.time()
    local now = redis.call('time')
    return now[1] * 1000 + math.floor(now[2] / 1000)
  end

  function queue.ours(owner)
    return string.byte(owner, 15) == 56
  end

  -- What a waiter of ours is registered by; nil = it is none, or waits for another name with this queue.
  function queue.registered(keys, owner)
    return redis.call('hget', keys[4], owner) or nil
  end

  function queue.register(keys, owner, nonce)
    redis.call('hset', keys[4], owner, nonce)
    redis.call('pexpire', keys[4], REGISTERED)
  end

  -- Takes a waiter out of the queue, wherever it stands.
  function queue.remove(keys, owner)
    if redis.call('lindex', keys[2], 0) == owner then
      redis.call('lpop', keys[2])
    else
      redis.call('lrem', keys[2], 1, owner)
    end
    redis.call('zrem', keys[3], owner)
    redis.call('hdel', keys[4], owner)
  end

  queue.stamped = stamped

  -- How long a waiter of ours may be silent still before it counts as dead, in ms. A time that seems to come is of now:
  -- the server's clock was set back, by a minute at the most.
  function queue.life(due, at, wait)
    if due % 1 == 0 then return due - at end
    local ticks = (math.floor(at / 62.5) - due % 1 * 4096) % 4096
    if ticks > 3072 then ticks = 0 end
    return math.max(wait, SILENT) - ticks * 62.5
  end

  function queue.notify(publish, owner, message)
    return redis.pcall(publish, queue.CHANNELS .. ':' .. owner, message)
  end

  -- Java's waiters ahead of a position in the queue: the sum of the waits that are known; what those that are not may come to, at the
  -- least and at the most; and what they may take off beyond their waits.
  function queue.nobody_ahead()
    return {sum = 0, low = 0, high = 0, beyond = 0, java = false}
  end

  -- One more of Java's is ahead. `gap`: its deadline less that of the one ahead of it, which is its wait; below nothing, it
  -- says nothing. `left`: what is left until its deadline, which is no more than a lease and its wait where nobody is ahead
  -- of it; with as much left as `lock()` has, it is one. A `tryLock` without a lease queues with the bare number of its
  -- wait, whatever the unit, and takes off the milliseconds of it when it gives up: a tiny wait may be one of seconds.
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
      -- Of no account where that much is left anyway.
      ahead.beyond = ahead.beyond + queue.LEASE
    end
  end

  -- The room of a waiter of ours at this position. `had`: the room it had, less what was taken off since; it may be of a time when
  -- a wait was known that is unknown now. What may be taken off beyond all waits is heeded up to a lease.
  function queue.needed(ahead, wait, had)
    if not ahead.java then return 0 end
    local unknown = math.min(math.max((had or 0) - ahead.sum, ahead.low), ahead.high)
    local beyond = math.min(ahead.beyond, queue.LEASE - wait)
    -- More than passes between two refreshes: `acquire` knows by it that one of Java's is ahead.
    return math.max(ahead.sum + math.max(unknown, beyond), SILENT / 2)
  end

  -- The room that a waiter needs at the queue's end.
  function queue.room(keys, at, wait)
    local scores, flat = {}, redis.call('zrange', keys[3], 0, -1, 'withscores')
    for i = 1, #flat, 2 do scores[flat[i]] = tonumber(flat[i + 1]) end
    local ahead, had, was = queue.nobody_ahead(), 0, nil
    for _, owner in ipairs(redis.call('lrange', keys[2], 0, -1)) do
      local due = scores[owner]
      if not queue.ours(owner) then
        queue.count_java(ahead, due and was and due - was, due and due - at)
        if due and was and due > was then had = had + due - was end
      elseif due then
        -- The waiter of ours that came last was given its room by the latest knowledge.
        had = due - at - wait
      end
      was = due
    end
    return queue.needed(ahead, wait, had)
  end

  -- The waiters of Java from position `from` on, up to one of ours, come nearer by so much: the one ahead of them goes. The
  -- first keeps `least` at the least, and those behind it their distance. `gone`: the deadline of the one that goes, where
  -- nobody is ahead of it: the first is no further from `least` than it was from that.
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

  -- The head leaves the queue because it gets the lock. Whoever comes next may wait for as long as the lock is held
  -- then, as if it came now.
  function queue.advance(keys, owner, at, wait)
    local due = redis.call('zscore', keys[3], owner)
    queue.remove(keys, owner)
    queue.nearer(keys, 0, wait, at + queue.LEASE, due)
  end

  -- One of ours whose deadline does not say when it was set, and is far away; with nobody of Java's ahead, it has no use for that.
  function queue.is_vague(owner, due, at, wait)
    return queue.ours(owner) and due % 1 == 0 and due > at + wait
  end

  -- The first in the queue of those who wait for this lock, after those whose time is over were taken out. One without a
  -- deadline, or with a vague one, gets a short one, so that it does not block the queue for good.
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
        due = queue.stamped(at + wait, at)
        redis.call('zadd', keys[3], due, owner)
      end
      if due <= at or queue.ours(owner) and queue.life(due, at, wait) <= 0 then
        queue.remove(keys, owner)
        if queue.ours(owner) and from == 0 then
          queue.nearer(keys, 0, 0, at + math.max(0, redis.call('pttl', keys[1])), due)
        end
        -- If it lives all the same, it queues up again.
        queue.notify(publish, owner, '0')
      elseif queue.ours(owner) and not queue.registered(keys, owner) then
        -- It waits for another lock.
        from = from + 1
      else
        return owner, due
      end
    end
  end

  -- The lock is free: the head gets it, if it is one of ours, for a first lease of so many ms; a head of Java's is
  -- notified, and takes it. Returns 0 when nobody waits, 1 when somebody was served, or the server's error when it refused
  -- the message.
  function queue.serve(keys, at, wait, lease, publish)
    local owner, due = queue.head(keys, at, wait, publish)
    if not owner then return 0 end
    local message, nonce = '0', queue.registered(keys, owner)
    if nonce then
      -- If it is dead, it shall not cost more than if it were not passed the lock.
      -- A deadline of Java's does not say when it was set.
      local most = queue.ours(owner) and math.min(due - at, queue.life(due, at, wait)) or due - at
      lease = math.min(lease, math.max(1, math.floor(most)))
      -- `!id`: its hold is listed by this id, and it asks when the message comes; `nonce=id`: listed too; else not.
      local id = string.match(nonce, '[!=](.*)$')
      if id then
        redis.call('hset', keys[1], owner, 1, owner .. ':holds', ',' .. id)
      else
        redis.call('hset', keys[1], owner, 1)
      end
      local leased = redis.pcall('pexpire', keys[1], lease)
      if type(leased) == 'table' and leased.err then
        -- A lock that never ends would be worse than one that is not passed on.
        redis.call('del', keys[1])
        return leased
      end
      queue.advance(keys, owner, at, wait)
      message = lease .. ' ' .. nonce
    end
    local sent = queue.notify(publish, owner, message)
    if type(sent) == 'table' and sent.err then return sent end
    return 1
  end
end

-- Makes `queue`. A script calls this on every path before it uses `queue`, with its own settings, also where an earlier step
-- has made it: steps of one command may be of several names. Whoever takes or gives back a lock that nobody waits for
-- does without, which costs less than the making.
local function load_queue(long, lease, channels)
  if not queue then make_queue() end
  queue.LONG, queue.LEASE, queue.CHANNELS = tonumber(long), tonumber(lease), channels
end
