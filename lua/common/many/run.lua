
end

-- Cache of decoded shapes: a batch has few different ones.
local shapes = {}
local function shape_of(text)
  local n = tonumber(text)
  local shape = {step = steps[math.floor(n / 10000)], keys = math.floor(n / 100) % 100, args = n % 100}
  shapes[text] = shape
  return shape
end

-- Reused for every step. `had_keys`, `had_args`: their lengths at the last step.
local out, keys, args, had_keys, had_args = {}, {}, {}, 0, 0
local key, arg, last, declared = 0, 1, #ARGV, #KEYS > 0
while arg <= last do
  local shape = shapes[ARGV[arg]] or shape_of(ARGV[arg])
  local nkeys, nargs = shape.keys, shape.args
  for i = 1, nkeys do keys[i] = declared and KEYS[key + i] or ARGV[arg + i] end
  for i = nkeys + 1, had_keys do keys[i] = nil end
  if declared then key = key + nkeys else arg = arg + nkeys end
  for i = 1, nargs do args[i] = ARGV[arg + i] end
  for i = nargs + 1, had_args do args[i] = nil end
  had_keys, had_args, arg = nkeys, nargs, arg + nargs + 1

  local ok, reply = pcall(shape.step, keys, args)
  if type(reply) == 'table' and reply.err then
    reply = {'!', reply.err}
  elseif not ok then
    -- Before Redis 7 an error is a text that starts with the position in the script.
    reply = {'!', (string.gsub(tostring(reply), '^@?user_script:%s*%d+:%s*%-?', ''))}
  elseif reply == nil then
    -- Lua cuts a list at nil. The server converts false to nil in the reply.
    reply = false
  end
  out[#out + 1] = reply
end
return out
