-- Runs many steps in one call. Each step is one call of a joined script. Its reply is the same as if it had been sent
-- alone.
-- The build joins this file, those scripts with `next.lua` between them, and `run.lua`.
-- KEYS   the keys of all steps, in order. None on a server of a cluster: the keys may be in several slots.
-- ARGV   per step: its shape; its keys, if KEYS has none; its arguments. The shape is s * 10000 + k * 100 + a: s = its
--        script's number (1 = the first joined script), k = its number of keys, a = its number of arguments.
-- Reply  a list with one entry per step: the step's reply, or {'!', text} if it failed; text = the error. A failed step
--        does not stop the others.
-- Idempotent if all steps are.

local steps = {}
steps[#steps + 1] = function(KEYS, ARGV)
