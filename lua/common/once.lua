-- Functions for commands that must take effect exactly once. The build puts this file in front of their scripts.
--
-- Token: a Redis key. A client uses it for one command at a time. Each use has a higher sequence number. The value is
-- `<number>:<reply>`: sequence number and reply of the last command that ran with this token. A script compares:
-- - its number is the same: the command is a repeat, and gets the stored reply;
-- - its number is lower: the command is a late copy, and does nothing;
-- - its number is higher, or there is no token: the command runs.
-- The token expires after the last moment at which a copy of the command may run.
-- KEYS   [2] token.
-- ARGV   [1] sequence number.   [2] time to live of the token in ms.
--        [3] last moment in ms of the server's time; 0 = none.

-- The server's time in ms.
local function clock()
  local now = redis.call('time')
  return now[1] * 1000 + math.floor(now[2] / 1000)
end

-- Returns the reply of a command that arrives too late or has run before; otherwise nil.
local function ran_before()
  local now = clock()
  if ARGV[3] ~= '0' and now > tonumber(ARGV[3]) then return {-7, now} end
  local last = redis.call('get', KEYS[2])
  if not last then return nil end
  local number, reply = string.match(last, '^(%d+):(.*)$')
  if tonumber(number) < tonumber(ARGV[1]) then return nil end
  return {'again', tonumber(number) == tonumber(ARGV[1]) and reply or ''}
end

-- Stores the reply of this command under the token. Returns the reply.
local function ran(reply)
  redis.call('set', KEYS[2], ARGV[1] .. ':' .. reply, 'px', ARGV[2])
  return reply
end

-- Returns the number under this key; 0 if there is no key. Text that is not a number stops the script: INCRBY fails.
local function read_number(key)
  local text = redis.call('get', key)
  if not text then return 0 end
  return tonumber(text) or redis.call('incrby', key, 0)
end
