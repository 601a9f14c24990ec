
end

-- All steps share the tables `keys` and `args`.
local out, keys, args, key, arg, declared = {}, {}, {}, 0, 1, #KEYS > 0
while arg <= #ARGV do
  local step, nkeys, nargs = steps[tonumber(ARGV[arg])], tonumber(ARGV[arg + 1]), tonumber(ARGV[arg + 2])
  arg = arg + 2
  for i = 1, nkeys do keys[i] = declared and KEYS[key + i] or ARGV[arg + i] end
  for i = #keys, nkeys + 1, -1 do keys[i] = nil end
  if declared then key = key + nkeys else arg = arg + nkeys end
  for i = 1, nargs do args[i] = ARGV[arg + i] end
  for i = #args, nargs + 1, -1 do args[i] = nil end
  arg = arg + nargs + 1

  local ok, reply = pcall(step, keys, args)
  if type(reply) == 'table' and reply.err then
    reply = {'!', reply.err}
  elseif not ok then
    -- Before Redis 7 an error is a text that starts with the position in the script.
    reply = {'!', (string.gsub(tostring(reply), '^@?user_script:%s*%d+:%s*%-?', ''))}
  elseif reply == nil then
    -- A nil would end the list. The server sends false as nil.
    reply = false
  end
  out[#out + 1] = reply
end
return out
