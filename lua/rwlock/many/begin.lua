-- Many steps about read-write locks in one call (`common/many`): what readers that leave mean for the lease of their hash is
-- looked at behind the last step, once for each hash. Put around `common/many` at build time.

deferred = {}
local function together()

