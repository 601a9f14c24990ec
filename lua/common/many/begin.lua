-- Runs many steps in one call, each as if it had been sent alone. The build joins this file, the scripts of the steps with
-- `next.lua` between them, and `run.lua`.
-- KEYS   the keys of all steps, in order. None if the steps are in several slots of a cluster's server.
-- ARGV   per step: its number, its number of keys, its number of arguments; its keys, if KEYS has none; its arguments.
-- Reply  a list with one entry per step: the step's reply, or {'!', text} if it failed. A failed step does not stop the others.
-- Idempotent if all steps are.

local steps = {}
steps[#steps + 1] = function(KEYS, ARGV)
