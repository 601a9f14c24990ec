
end

-- The lease of a hash that readers have left, as the last of them would have set it alone; the hash goes where nobody in it lives.
local function settle(left)
  local hash = left.hash
  if redis.call('hget', hash, 'mode') ~= 'read' then return end
  local now, fields = redis.call('pttl', hash), redis.call('hlen', hash)
  local live, dead = lease_needed(hash, left.tag, fields, now, {owner = '', count = 0, left = 0, decided = true})
  if live and live <= 0 then
    redis.call('del', hash)
    redis.pcall(left.publish, left.channel, '0')
  else
    give_lease(hash, now, live, dead, left.publish, left.channel)
  end
end

local out = together()
if deferred[1] then load_readers() end
local settled = {}
for _, left in ipairs(deferred) do
  -- One that cannot be looked at (a cluster's slot is being moved) keeps its lease, which is too long at the worst.
  if not settled[left.hash] then pcall(settle, left) end
  settled[left.hash] = true
end
return out
