-- Many steps about fair locks in one call (`common/many`): those who leave their queues are taken out of the lists behind the last
-- step, or before one that reads a list. Put around `common/many` at build time.

leavers = {}
local function together()

