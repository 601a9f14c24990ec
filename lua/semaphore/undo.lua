-- Undoes an acquire that may have run, or may yet run.
-- KEYS   [1] the number of free permits.   [2] token (`common/once.lua`).
-- ARGV   [1] the number of the acquire.   [2], [3] as in `common/once.lua`.   [4] permits of the acquire.
--        [5] publish command.   [6] channel.
-- Reply  `1` its permits are free again; `0` the acquire had not run. A late copy of it now does nothing.
--        `{-7, at}` too late, nothing was done; at = the server's time in ms.
-- Idempotent. O(1).

local before = ran_before()
if before and before[1] == -7 then return before end
-- A later command has this token by now, so an earlier copy of this script has run.
if before and before[2] == '' then return 0 end
local has_run = before and before[2] == '1'
-- Reads the number before the first write, so that a missing key of a slot that is being moved stops the script.
if has_run then read_number(KEYS[1]) end
-- Replaces the stored reply 1 (taken) by 0.
ran('0')
if not has_run then return 0 end
local free = redis.pcall('incrby', KEYS[1], ARGV[4])
if type(free) == 'table' then
  redis.pcall('set', KEYS[2], ARGV[1] .. ':1', 'px', ARGV[2])
  return free
end
if free > 0 then redis.pcall(ARGV[5], ARGV[6], free) end
return 1
