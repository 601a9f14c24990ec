
end

-- Sets the lease of a hash from which steps removed readers, as `read_release.lua` would have set it for the last of
-- them. If no reader is alive, the lock is freed.
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
  -- If a key cannot be read, because a cluster moves its slot, the hash keeps its lease. At worst, that is too long.
  if not settled[left.hash] then pcall(settle, left) end
  settled[left.hash] = true
end
return out
