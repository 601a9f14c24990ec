
end

-- One table each for all steps, without what an earlier one left behind a step's own.
local out, keys, args, key, arg = {}, {}, {}, 0, 1
while arg <= #ARGV do
  local step, nkeys, nargs = steps[tonumber(ARGV[arg])], tonumber(ARGV[arg + 1]), tonumber(ARGV[arg + 2])
  for i = 1, nkeys do keys[i] = KEYS[key + i] end
  for i = #keys, nkeys + 1, -1 do keys[i] = nil end
  for i = 1, nargs do args[i] = ARGV[arg + 2 + i] end
  for i = #args, nargs + 1, -1 do args[i] = nil end
  key, arg = key + nkeys, arg + 3 + nargs

  local ok, reply = pcall(step, keys, args)
  if type(reply) == 'table' and reply.err then
    reply = {'!', reply.err}
  elseif not ok then
    -- Before Redis 7 an error is a text that begins with the position in the script.
    reply = {'!', (string.gsub(tostring(reply), '^@?user_script:%s*%d+:%s*%-?', ''))}
  elseif reply == nil then
    -- A nil would end the list.
    reply = false
  end
  out[#out + 1] = reply
end
return out
