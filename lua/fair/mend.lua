-- The slow path of `refresh.lua`: reads the whole queue, sets every deadline, and removes dead waiters. The build puts
-- this file between `queue.lua`, which defines the terms and `keys`, and `refresh.lua`. `places`: a flat list; the even
-- indexes have the owners of the waiters in ARGV, the odd ones are not read. `nonces`: the registrations of these
-- waiters.

local mend

-- Creates `mend`. A path calls this before it uses `mend`; `mend.set` also needs `load_queue`.
local function load_mend()
  if mend then return end
  mend = {}

  -- Sets all deadlines, and removes dead waiters. `known`: the waiters in ARGV, as {owner = `at` of the last reply
  -- about it}. Returns the set of waiters in the queue.
  function mend.set(keys, known, at, wait)
    local all = redis.call('lrange', keys[2], 0, -1)
    local flat = redis.call('zrange', keys[3], 0, -1, 'withscores')
    local scores, queued, new = {}, {}, {}
    for i = 1, #flat, 2 do scores[flat[i]] = tonumber(flat[i + 1]) end

    -- The old and the new deadline of the waiter ahead.
    local was, is, ahead, told = nil, nil, queue.nobody_ahead(), false
    for i, owner in ipairs(all) do
      local due = scores[owner]
      local set, second = due, queued[owner]
      queued[owner] = true
      if second then
        -- If the deadline of a waiter of Java was lost, the waiter queues again, so it is in the list twice. The second
        -- entry is removed. Otherwise each refresh after the waiter's death would set its deadline again.
        redis.call('lrem', keys[2], -1, owner)
        due, set = was, is
      elseif queue.ours(owner) and not known[owner] and due and queue.life(due, at, wait) <= 0 then
        -- A dead waiter is removed at any position. The next waiter then follows the waiter ahead of the dead one, or,
        -- if there is none, the end of the lock's lease.
        queued[owner] = nil
        redis.call('lrem', keys[2], 1, owner)
        redis.call('hdel', keys[4], owner)
        set = is or at + math.max(0, redis.call('pttl', keys[1]))
      elseif queue.ours(owner) or known[owner] then
        -- An owner of Java that waits through a client of ours is treated as ours.
        local last = known[owner]
        if last or not due or not ahead.java and queue.is_vague(owner, due, at, wait) then
          local had = last and due and last > 0 and math.floor(due) - last - wait
          set = stamped(at + wait + queue.needed(ahead, wait, had), at)
        end
      else
        local gap = due and was and due - was
        if gap then
          set = is and is + gap or due
        elseif not due then
          -- The lost deadline is replaced. If no waiter is ahead, the new deadline is short, as in `queue.head`.
          set = is and is + queue.LONG or at + wait
        end
        queue.count_java(ahead, gap, queue.rest(i, owner, due, at, told))
      end
      if queued[owner] and not second and set ~= due then
        new[#new + 1] = set
        new[#new + 1] = owner
      end
      told = queue.is_told(i, owner, due, at)
      was, is = not told and due or nil, set
    end
    for i = 1, #new, 200 do
      redis.call('zadd', keys[3], unpack(new, i, math.min(i + 199, #new)))
    end
    for owner in pairs(scores) do
      if not queued[owner] then redis.call('zrem', keys[3], owner) end
    end
    -- Redisson removes dead waiters of ours, but not their registrations. A leftover registration would hide a waiter
    -- of Java from `only_ours`, which compares counts.
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

  -- True if the lock was passed on to the waiter with this registration; false if others acquired as its owner.
  local function passed(hash, owner, count, nonce)
    load_holds()
    local ids, id = holds.listed(hash, owner), string.match(nonce, '[!=](.*)$')
    if id then return holds.is_counted(ids, id) end
    return holds.unlisted(tonumber(count) or 0, ids) > 0
  end

  -- The values of the owners' fields in a hash, each at its index.
  local function fields(hash, places)
    local owners, out = {}, {}
    for i = 2, #places, 2 do owners[i / 2] = places[i] end
    for from = 1, #owners, 200 do
      local found = redis.call('hmget', hash, unpack(owners, from, math.min(from + 199, #owners)))
      for i = 1, #found do out[from + i - 1] = found[i] end
    end
    return out
  end

  -- Registers waiters whose registrations are missing, and extends the expiry of the registrations. `queued`: the set
  -- of waiters in the queue; nil = all are.
  function mend.register(keys, places, nonces, queued)
    local known_by = fields(keys[4], places)
    for i, nonce in ipairs(nonces) do
      local owner = places[2 * i]
      if not known_by[i] and (not queued or queued[owner]) then redis.call('hset', keys[4], owner, nonce) end
    end
    redis.call('pexpire', keys[4], REGISTERED)
  end

  -- The fourth answer of the reply (`refresh.lua`), as a list.
  function mend.answers(hash, places, nonces, queued)
    local counts, answers = fields(hash, places), {}
    for i, nonce in ipairs(nonces) do
      local owner = places[2 * i]
      if not counts[i] then
        answers[i] = (not queued or queued[owner]) and 1 or 0
      else
        answers[i] = passed(hash, owner, counts[i], nonce) and math.max(2, redis.call('pttl', hash)) or 0
      end
    end
    return answers
  end
end
