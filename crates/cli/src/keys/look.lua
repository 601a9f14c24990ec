-- Finds the locks that are held, among one page of a scan or among given keys.
-- KEYS   none: the keys of a page are not known before the script runs.
-- ARGV   1 `shardnumsub` in a cluster, else ''.
--        2 `scan`: then 3 cursor, 4 COUNT, 5 pattern ('' = all keys). `keys`: then the keys.
-- Reply  {cursor, number of keys, records}. A record is {key, kind, ms, holder, holds, queue, subscribers, number}:
--        kind         `lock` = a hash with one owner; `read`, `write` = a read-write lock in this mode; `plain`;
--                     `permits`.
--        ms           time until the key expires, for permits until the last lease ends; -1 = no end.
--        holder       owner; `read`: one of the readers; `plain`: the key's value; `permits`: ''.
--        holds        the owner's count; `read`: number of readers, above 256 fields an upper bound; `permits`: held.
--        queue        length of the fair queue.
--        subscribers  connections that subscribe to the lock's channel.
--        number       fencing counter; `permits`: total; '' = none.
-- Error  `ERR right +scan is missing: ..`, if this login lacks the right to a command.
-- Reads only. A few commands for each key, none above O(log n), except that up to 256 fields of a read-write lock are
-- listed. Keys that this login may not read, or that a cluster is moving, are skipped.

local OWNER = '^' .. string.rep('%x', 8) .. string.rep('%-%x%x%x%x', 4) .. string.rep('%x', 8) .. ':%d+'
local WHOLE = OWNER .. '$'
-- Registrations of fair waiters look like the hash of a lock: owner = digits.
local WAITERS = 'redisson_lock_waiters:'
-- Number of fields up to which all fields are listed.
local LISTED = 256
-- Length of the longest value of a plain lock.
local LONGEST = 96
-- Score that Redisson writes for a permit that never expires.
local NO_END = 922337203685477

local function tag(key)
  return string.find(key, '{', 1, true) and key or '{' .. key .. '}'
end

-- The right that this login lacks, with the server's reason.
local missing

-- As `redis.call`. Notes a missing right to a command, but not to a key: the server's text is "can't run this command"
-- before Redis 7.2, and "no permissions to run the 'scan' command" since.
local function call(command, ...)
  local reply = redis.pcall(command, ...)
  if type(reply) == 'table' and reply.err then
    if string.find(reply.err, 'run th') then missing = 'ERR right +' .. command .. ' is missing: ' .. reply.err end
    error(reply.err, 0)
  end
  return reply
end

-- The reply of a command, or `instead` if the server refuses it or the key does not exist.
local function or_else(instead, ...)
  local reply = redis.pcall(...)
  if not reply or type(reply) == 'table' and reply.err then return instead end
  return reply
end

local function listeners(channel)
  local plain = or_else({}, 'pubsub', 'numsub', channel)[2] or 0
  local sharded = ARGV[1] ~= '' and or_else({}, 'pubsub', ARGV[1], channel)[2] or 0
  return plain + sharded
end

local function read_write(key, mode, fields)
  local listed
  if fields <= LISTED then
    listed = call('hkeys', key)
  else
    listed = {}
    for i, word in ipairs(call('hscan', key, 0, 'count', 16)[2]) do
      if i % 2 == 1 then listed[#listed + 1] = word end
    end
  end
  local holder, holds = nil, 0
  for _, field in ipairs(listed) do
    local owner = mode == 'read' and field or string.match(field, '^(.*):write$')
    if owner and string.find(owner, WHOLE) then
      holder, holds = holder or owner, holds + 1
    end
  end
  if not holder then return nil end
  if mode == 'write' then
    holds = tonumber(call('hget', key, holder .. ':write')) or 0
  elseif fields > LISTED then
    holds = fields - 1
  end
  local heard = listeners('redisson_rwlock:' .. tag(key))
  return {key, mode, call('pttl', key), holder, holds, 0, heard, ''}
end

local function hash(key)
  local fields = call('hlen', key)
  if fields > 1 then
    local mode = call('hget', key, 'mode')
    if mode == 'read' or mode == 'write' then return read_write(key, mode, fields) end
  end
  -- A lock has one owner, and perhaps the list of its holds, a leader's announcement and a request to finish.
  if fields > 4 or string.sub(key, 1, #WAITERS) == WAITERS then return nil end
  local listed, owner = call('hkeys', key), nil
  for _, field in ipairs(listed) do
    if string.find(field, WHOLE) then owner = field end
  end
  if not owner then return nil end
  for _, field in ipairs(listed) do
    local is_mark = field == 'leader:holds' or field == 'revoke:holds'
    if field ~= owner and field ~= owner .. ':holds' and not is_mark then return nil end
  end
  local count = call('hget', key, owner)
  if #count > 15 or not string.find(count, '^%d+$') then return nil end
  local queued = or_else(0, 'llen', 'redisson_lock_queue:' .. tag(key))
  local heard = queued == 0 and listeners('redisson_lock__channel:' .. tag(key)) or 0
  local number = or_else('', 'get', 'redisson_lock_token:' .. tag(key))
  return {key, 'lock', call('pttl', key), owner, tonumber(count), queued, heard, number}
end

local function permits(key, free)
  local leases = tag(key) .. ':timeout'
  local all = call('zcard', leases)
  if all == 0 then return nil end
  local last = call('zrange', leases, -1, -1, 'withscores')
  if #last[1] ~= 16 then return nil end
  local time = call('time')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local held = call('zcount', leases, '(' .. string.format('%.0f', now), '+inf')
  if held == 0 then return nil end
  local ends = tonumber(last[2])
  local left = ends < NO_END and ends - now or -1
  return {key, 'permits', left, '', held, 0, listeners('redisson_sc:' .. tag(key)), tostring(free + all)}
end

-- True for the values of plain locks of this crate: the owner's text, or its bytes in hex or base64. A uuid of this
-- crate has version 8. The caller checks the rest of the value.
local function is_plain(value)
  if string.find(value, OWNER) then return string.sub(value, 15, 15) == '8' end
  if #value == 48 or #value == 76 then return string.find(value, '^%x+$') and string.sub(value, 13, 13) == '8' end
  if #value == 32 or #value == 52 then return string.find(value, '^[%w+/]+=?$') and string.find(value, '^[g-j]', 9) end
  return false
end

local function text(key)
  local value = call('getrange', key, 0, LONGEST)
  if #value < 16 then return string.find(value, '^%-?%d+$') and permits(key, tonumber(value)) or nil end
  if #value < 32 or #value > LONGEST then return nil end
  local left = is_plain(value) and call('pttl', key) or 0
  if left <= 0 then return nil end
  return {key, 'plain', left, value, 1, 0, listeners('distlock_plain:' .. tag(key)), ''}
end

local function look(key)
  local kind = call('type', key).ok
  if kind == 'hash' then return hash(key) end
  if kind == 'string' then return text(key) end
  return nil
end

local cursor, keys = '0', nil
if ARGV[2] == 'scan' then
  local words = {'scan', ARGV[3], 'count', ARGV[4]}
  if ARGV[5] ~= '' then words[5], words[6] = 'match', ARGV[5] end
  local ran, page = pcall(call, unpack(words))
  if not ran then return redis.error_reply(missing or page) end
  cursor, keys = page[1], page[2]
else
  keys = {unpack(ARGV, 3)}
end
local records = {}
for _, key in ipairs(keys) do
  local ran, record = pcall(look, key)
  if ran and record then records[#records + 1] = record end
end
if missing then return redis.error_reply(missing) end
return {cursor, #keys, records}
