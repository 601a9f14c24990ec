-- Functions for commands that must count exactly once. The build puts this file in front of their scripts.
--
-- Token: a key of one client, which is in use for one command at a time. It holds `<number>:<reply>`: the number of the
-- last command that ran with it, and its reply. Numbers grow. So a repeat gets the first reply again, and a late copy
-- does nothing. The token expires after the last moment at which its client may repeat the command.
-- KEYS   [2] token.
-- ARGV   [1] number.   [2] time to live of the token in ms.
--        [3] last moment in ms of the server's time. 0 = none.

-- The server's time in ms.
local function clock()
  local now = redis.call('time')
  return now[1] * 1000 + math.floor(now[2] / 1000)
end

-- The reply of a command that arrives too late, or has run before; nil otherwise.
local function ran_before()
  local now = clock()
  if ARGV[3] ~= '0' and now > tonumber(ARGV[3]) then return {-7, now} end
  local last = redis.call('get', KEYS[2])
  if not last then return nil end
  local number, reply = string.match(last, '^(%d+):(.*)$')
  if tonumber(number) < tonumber(ARGV[1]) then return nil end
  return {'again', tonumber(number) == tonumber(ARGV[1]) and reply or ''}
end

-- Notes the reply of this command. Returns the reply.
local function ran(reply)
  redis.call('set', KEYS[2], ARGV[1] .. ':' .. reply, 'px', ARGV[2])
  return reply
end

-- The number under this key; 0 if there is none. Text that is not a number stops the script.
local function read_number(key)
  local text = redis.call('get', key)
  if not text then return 0 end
  return tonumber(text) or redis.call('incrby', key, 0)
end
