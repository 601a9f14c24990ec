-- Acquires the lock like `reentrant/acquire.lua`, and numbers the critical section. The build joins this file,
-- `reentrant/acquire.lua` and `number.lua`, whose header describes the arguments.
local take = function(KEYS, ARGV)
