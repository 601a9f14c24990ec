-- Takes permits, all or none.
-- KEYS   [1] the number of free permits.   [2] token (`common/once.lua`).
-- ARGV   [1] to [3] as in `common/once.lua`.   [4] permits.
-- Reply  `1` taken; `0` there are not enough.
--        `{'again', reply}` this command has run before, with this reply; '' = a later command has run.
--        `{-7, at}` too late, nothing was done; at = the server's time in ms.
-- O(1). Redisson's state.

local before = ran_before()
if before then return before end
if read_number(KEYS[1]) < tonumber(ARGV[4]) then
  -- A late copy of this command must not take permits for nobody.
  ran('0')
  return 0
end
-- The token first. If DECRBY fails, the token is deleted.
ran('1')
local left = redis.pcall('decrby', KEYS[1], ARGV[4])
if type(left) == 'table' then
  redis.pcall('del', KEYS[2])
  return left
end
return 1
