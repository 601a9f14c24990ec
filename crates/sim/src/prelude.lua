-- The environment that Redis 7.0 gives to scripts: the `redis` table, sealed globals, the form of errors.
-- Arguments: raw(command words...) -> reply | nil, error text;  sha1hex(text);  line() of the running script
-- Returns: the scripts' environment;  run(script, KEYS, ARGV) -> ok, result

local raw, sha1hex, line = ...
local error, type, tostring, rawset, xpcall, find, sub = error, type, tostring, rawset, xpcall, string.find, string.sub
local floor = math.floor

local function fault(text)
  return {err = text}
end

local redis = {LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3}

function redis.call(...)
  local reply, text = raw(...)
  if text then error(fault(text), 0) end
  return reply
end

function redis.pcall(...)
  local reply, text = raw(...)
  if text then return fault(text) end
  return reply
end

function redis.error_reply(text)
  if type(text) ~= 'string' then return fault('ERR wrong number or type of arguments') end
  local code, rest = 'ERR', text
  if sub(text, 1, 1) == '-' then
    text = sub(text, 2)
  end
  local blank = find(text, ' ', 1, true)
  if blank then
    code, rest = sub(text, 1, blank - 1), sub(text, blank + 1)
  else
    rest = text
  end
  return fault(code .. ' ' .. rest)
end

function redis.status_reply(text)
  if type(text) ~= 'string' then return fault('ERR wrong number or type of arguments') end
  return {ok = text}
end

redis.sha1hex = sha1hex
function redis.log() end
function redis.replicate_commands() return true end
function redis.setresp() end

-- The random numbers of every script begin with the same seed, as in Redis.
local state = 0
local function random(low, high)
  state = (state * 16807 + 12345) % 2147483647
  local unit = state / 2147483647
  if not low then return unit end
  if not high then low, high = 1, low end
  return low + floor(unit * (high - low + 1))
end
local numbers = {}
for name, value in pairs(math) do numbers[name] = value end
numbers.random = random
numbers.randomseed = function(seed) state = seed % 2147483647 end

local env = {
  redis = redis, math = numbers, string = string, table = table,
  assert = assert, error = error, ipairs = ipairs, next = next, pairs = pairs, pcall = pcall, rawequal = rawequal,
  rawget = rawget, select = select, tonumber = tonumber, tostring = tostring, type = type, unpack = unpack,
  xpcall = xpcall, setmetatable = setmetatable, getmetatable = getmetatable,
}
env._G = env
setmetatable(env, {
  __index = function(_, name)
    error('Script attempted to access nonexistent global variable \'' .. tostring(name) .. '\'', 2)
  end,
  __newindex = function()
    error('Attempt to modify a readonly table', 2)
  end,
})

local function handler(err)
  if type(err) ~= 'table' then err = fault('ERR ' .. tostring(err)) end
  err.line = line()
  return err
end

local function run(script, keys, argv)
  state = 0
  rawset(env, 'KEYS', keys)
  rawset(env, 'ARGV', argv)
  return xpcall(script, handler)
end

return env, run
