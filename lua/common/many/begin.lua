-- Runs many steps in one call. A step is a call of one of the joined scripts, and runs as if it had been sent alone.
-- The build joins this file, those scripts with `next.lua` between them, and `run.lua`.
-- KEYS   the keys of all steps, in order. None if the keys are in several slots of a cluster's server.
-- ARGV   per step: its shape; its keys, if KEYS has none; its arguments. The shape is s * 10000 + k * 100 + a: s = its
--        script's number (1 = the first joined script), k = its number of keys, a = its number of arguments.
-- Reply  a list with one entry per step: the step's reply, or {'!', text} if it failed; text = the error. A failed step
--        does not stop the others.
-- Idempotent if all steps are.

local steps = {}
steps[#steps + 1] = function(KEYS, ARGV)
