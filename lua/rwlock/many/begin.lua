-- Runs many steps about read-write locks in one call (`common/many`). After the last step, the lease of each hash that readers
-- have left is checked once. The build puts this file in front of `common/many`, and `end.lua` behind it.

deferred = {}
local function together()

