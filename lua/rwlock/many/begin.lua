-- Runs many steps about read-write locks in one call (`common/many`). After the last step (`end.lua`), the lease of
-- each hash from which the steps removed readers is checked once. The build puts this file in front of `common/many`,
-- and `end.lua` behind it.

deferred = {}
local function together()

