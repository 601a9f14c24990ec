-- Acquires the lock as the reentrant one does, and numbers the section. The build joins this file, `reentrant/acquire.lua`
-- and `number.lua`, whose header describes the arguments.
local take = function(KEYS, ARGV)
