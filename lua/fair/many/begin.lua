-- Runs many steps about fair locks in one call (`common/many`). Waiters that leave are removed from the lists after the
-- last step, or before a step that reads a list. The build puts this file in front of `common/many`, and `end.lua`
-- behind it. The function `together` catches the `return` of `run.lua`.

leavers = {}
local function together()

