-- The removal of one waiter, for `leave.lua` and `dequeue.lua`. The build puts this file behind `queue.lua`, which
-- defines the terms and `keys`. Both functions need `load_queue`.

-- Removes a waiter with its deadline and its registration. `wait`: the waiter's own wait in ms, used if the waiter is
-- the head; 0 for a waiter of Java, because the deadline of a head shows its wait. `may_defer`: in a command of many
-- steps, the waiter may stay in the list until `take_out`. Returns true if it stays.
local function remove_waiter(keys, owner, wait, may_defer)
  local is_simple = only_ours(keys)
  local defers = is_simple and may_defer and leavers ~= nil
  if not defers then take_out() end
  if not is_simple then
    local all = redis.call('lrange', keys[2], 0, -1)
    for i = #all, 1, -1 do
      if all[i] == owner then
        local due = redis.call('zscore', keys[3], owner)
        local ahead = i > 1 and tonumber(redis.call('zscore', keys[3], all[i - 1]) or nil)
        if queue.is_told(i - 1, all[i - 1], ahead, queue.time()) then ahead = nil end
        redis.call('lrem', keys[2], -1, owner)
        -- The waiters of Java right behind the owner now follow the waiter ahead of it, so their deadlines become
        -- earlier.
        if due and ahead then
          queue.nearer(keys, i - 1, due - ahead)
        elseif i == 1 then
          queue.nearer(keys, 0, wait, queue.time() + math.max(0, redis.call('pttl', keys[1])), due)
        end
      end
    end
  elseif not defers then
    redis.call('lrem', keys[2], -1, owner)
  end
  redis.call('zrem', keys[3], owner)
  redis.call('hdel', keys[4], owner)
  if defers then
    local left = leavers[keys[2]] or {}
    leavers[keys[2]] = left
    left[#left + 1] = owner
  end
  return defers
end

-- Called after a removal: deletes the keys of an empty queue. If waiters are left and the lock is free, serves the head
-- and returns the result of `queue.serve`; otherwise returns nil.
local function serve_next(keys, free, wait, lease, publish)
  if redis.call('exists', keys[2]) == 0 then
    redis.call('del', keys[3], keys[4])
  elseif free then
    return queue.serve(keys, queue.time(), wait, lease, publish)
  end
end
