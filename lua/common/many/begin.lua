-- Many steps in one call, each as if it had been sent alone. Put together at build time from this fragment, the scripts
-- of the steps with `next.lua` between them, and `run.lua`.
-- KEYS   the keys of every step, one step after the other; or none, for steps in several slots of a cluster's server
-- ARGV   for every step: its number, how many keys it has, how many arguments; its keys, where none are in KEYS; the arguments
-- Reply  a list, an entry a step: what the step answered, or {'!', text} when it failed. A failed step stops no other.
-- Idempotence: that of the steps.

local steps = {}
steps[#steps + 1] = function(KEYS, ARGV)
