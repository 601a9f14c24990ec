-- Take the lock as the reentrant one is taken, and give the section its number. Put together at build time from this
-- fragment, `reentrant/acquire.lua` and `number.lua`, whose header says what it is called with.
local take = function(KEYS, ARGV)
