
end

-- For each hash that readers have left, its lease, as the last of them would have set it alone; the hash goes where nobody in it
-- lives. One that cannot be looked at (a cluster's slot is being moved) keeps its lease, which is too long at the worst.
local function settle()
  if not deferred[1] then return end
  load_readers()
  local settled = {}
  for _, left in ipairs(deferred) do
    local hash = left.hash
    if not settled[hash] and redis.call('hget', hash, 'mode') == 'read' then
      local now, fields = redis.call('pttl', hash), redis.call('hlen', hash)
      local live, dead = lease_needed(hash, left.tag, fields, now, {owner = '', count = 0, left = 0, decided = true})
      if live and live <= 0 then
        redis.call('del', hash)
        redis.pcall(left.publish, left.channel, '0')
      else
        give_lease(hash, now, live, dead, left.publish, left.channel)
      end
    end
    settled[hash] = true
  end
end

local out = together()
pcall(settle)
return out
