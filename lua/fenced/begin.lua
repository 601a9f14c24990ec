-- Acquires the lock like `reentrant/acquire.lua`, and numbers the critical section: the time from an owner's first
-- acquire to its last release. The build joins this file, `reentrant/acquire.lua` and `number.lua`. `number.lua`
-- describes the arguments and the reply.
local take = function(KEYS, ARGV)
