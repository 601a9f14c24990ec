-- Functions shared by the scripts of permits. The build puts this file in front of them.
--
-- Terms of these scripts:
-- - Free count: the number of permits that nobody holds. It may be negative after the total was lowered.
-- - Leases: the sorted set of held permits. Member = the permit's id, 16 bytes. Score = the end of its lease in ms of
--   the server's time.
-- - Expired permit: its lease has ended. It stays in the sorted set until a script adds it to the free count.
-- - Ids: one argument with all ids of a hold, 16 bytes each.

-- Maximum number of expired permits that a script adds to the free count.
local MOST = 1000
-- Score that Redisson writes for a permit that never expires.
local NO_END = 922337203685477

-- The server's time in ms.
local function clock()
  local now = redis.call('time')
  return now[1] * 1000 + math.floor(now[2] / 1000)
end

local function split(ids)
  local list = {}
  for at = 1, #ids, 16 do list[#list + 1] = string.sub(ids, at, at + 15) end
  return list
end

-- Returns the text of an error reply; nil for any other reply.
local function error_of(reply)
  return type(reply) == 'table' and reply.err or nil
end

-- Returns the free count; 0 if there is no key. Text that is not a number stops the script, because INCRBY fails.
local function read_count(key)
  local text = redis.call('get', key)
  if not text then return 0 end
  return tonumber(text) or redis.call('incrby', key, 0)
end

-- Returns the ids of the expired permits, at most MOST, ordered by the end of their lease.
local function list_expired(leases, now)
  return redis.call('zrangebyscore', leases, 0, now, 'LIMIT', 0, MOST)
end
