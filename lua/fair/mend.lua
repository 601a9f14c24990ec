-- What the refresh of the fair lock does where it is not enough to set the deadlines of those named: put between
-- `queue.lua` and `refresh.lua` at build time. Terms and `keys` are those of `queue.lua`; `places` = anything, owner, anything,
-- owner, ..

local mend

-- Makes `mend`. A script calls this on every path before it uses `mend`, and `load_queue` before. Whoever finds all in order does
-- without, which costs less than the making.
local function load_mend()
  if mend then return end
  mend = {}

  -- Sets the deadlines. `known`: the waiters that are alive, each with the `at` of its last answer. Returns who stands in
  -- the queue.
  function mend.set(keys, known, at, wait)
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
        if last or not due or not ahead.java and queue.is_vague(owner, due, at, wait) then
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
    for i = 1, #new, 200 do
      redis.call('zadd', keys[3], unpack(new, i, math.min(i + 199, #new)))
    end
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

  -- What owners have in a hash, each at its index.
  local function fields(hash, places)
    local owners, out = {}, {}
    for i = 2, #places, 2 do owners[i / 2] = places[i] end
    for from = 1, #owners, 200 do
      local found = redis.call('hmget', hash, unpack(owners, from, math.min(from + 199, #owners)))
      for i = 1, #found do out[from + i - 1] = found[i] end
    end
    return out
  end

  -- The hash of waiters is gone where nobody refreshed it for long: they are registered anew. `queued`: who stands in the
  -- queue; nil = all do.
  function mend.register(keys, places, nonces, queued)
    local known_by = fields(keys[4], places)
    for i, nonce in ipairs(nonces) do
      local owner = places[2 * i]
      if not known_by[i] and (not queued or queued[owner]) then redis.call('hset', keys[4], owner, nonce) end
    end
    redis.call('pexpire', keys[4], REGISTERED)
  end

  -- What became of the waiters of one lock, as the reply has it.
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
