-- Runs many steps about read-write locks in one call (`common/many`). A step that removes readers does not shorten the
-- lease of the lock's hash. After the last step, `end.lua` does so, once per hash. The build puts this file in front of
-- `common/many`, and `end.lua` behind it.

deferred = {}
local function together()

