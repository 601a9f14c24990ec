-- Adds permits, and wakes waiters.
-- KEYS   [1] free count.   [2] token (`common/once.lua`).
-- ARGV   [1] to [3] as in `common/once.lua`.   [4] number of permits.
--        [5] 1 = only if there is a free count; 0 = creates it if necessary.
--        [6] publish command.   [7] channel.
-- Reply  `1` added; `0` there is no free count, nothing was done.
--        `{'again', reply}` this command has run before, with this reply; '' = a later command has used the token.
--        `{-7, at}` too late, nothing was done; at = the server's time in ms.
-- O(1). Redisson's state and message. Difference: a free count below 1 is not sent.

local before = ran_before()
if before then return before end
local missing = redis.call('exists', KEYS[1]) == 0
read_number(KEYS[1])
if ARGV[5] == '1' and missing then
  ran('0')
  return 0
end
-- Write the token first. If INCRBY fails, delete the token.
ran('1')
local free = redis.pcall('incrby', KEYS[1], ARGV[4])
if type(free) == 'table' then
  redis.pcall('del', KEYS[2])
  return free
end
if free > 0 then redis.pcall(ARGV[6], ARGV[7], free) end
return 1
