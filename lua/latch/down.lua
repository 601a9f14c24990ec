-- Counts a latch down. At zero, deletes the latch and wakes all waiters.
-- KEYS   [1] count.   [2] token (`common/once.lua`).
-- ARGV   [1] to [3] as in `common/once.lua`.   [4] the number to subtract.   [5] publish command.   [6] channel.
-- Reply  The count that is left; 0 also if there was no count.
--        `{'again', reply}` this command has run before, with this reply; '' = a later command has used the token.
--        `{-7, at}` too late, nothing was done; at = the server's time in ms.
-- O(1). Redisson's state and message.

local before = ran_before()
if before then return before end
local count = read_number(KEYS[1])
if count <= 0 then
  ran('0')
  redis.call('del', KEYS[1])
  return 0
end
local left = math.max(count - tonumber(ARGV[4]), 0)
ran(string.format('%.0f', left))
local done
if left == 0 then
  done = redis.pcall('del', KEYS[1])
else
  done = redis.pcall('decrby', KEYS[1], ARGV[4])
end
if type(done) == 'table' then
  redis.pcall('del', KEYS[2])
  return done
end
if left == 0 then redis.pcall(ARGV[5], ARGV[6], '0') end
return left
