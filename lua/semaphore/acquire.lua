-- Takes permits, all or none.
-- KEYS   [1] free count.   [2] token (`common/once.lua`).
-- ARGV   [1] to [3] as in `common/once.lua`.   [4] number of permits.
-- Reply  `1` taken; `0` too few permits are free.
--        `{'again', reply}` this command has run before, with this reply; '' = a later command has used the token.
--        `{-7, at}` too late, nothing was done; at = the server's time in ms.
-- O(1). Redisson's state.

local before = ran_before()
if before then return before end
if read_number(KEYS[1]) < tonumber(ARGV[4]) then
  -- A late copy of this command finds this reply, and takes no permits.
  ran('0')
  return 0
end
-- Write the token first. If DECRBY fails, delete the token.
ran('1')
local left = redis.pcall('decrby', KEYS[1], ARGV[4])
if type(left) == 'table' then
  redis.pcall('del', KEYS[2])
  return left
end
return 1
