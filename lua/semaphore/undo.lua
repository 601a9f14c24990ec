-- Undoes an acquire that may have run, or may still run.
-- KEYS   [1] free count.   [2] token (`common/once.lua`).
-- ARGV   [1] sequence number of the acquire.   [2], [3] as in `common/once.lua`.
--        [4] number of permits of the acquire.
--        [5] publish command.   [6] channel.
-- Reply  `1` the permits of the acquire are free again.
--        `0` the acquire had not run. A late copy now does nothing.
--        `{-7, at}` too late, nothing was done; at = the server's time in ms.
-- Idempotent. O(1).

local before = ran_before()
if before and before[1] == -7 then return before end
-- A later command has used the token, so an earlier copy of this script has run.
if before and before[2] == '' then return 0 end
local has_run = before and before[2] == '1'
-- Reads the free count before the first write. While its slot moves, a missing key stops the script here.
if has_run then read_number(KEYS[1]) end
-- Replaces the stored reply 1 (taken) by 0. If the acquire has not run, a late copy of it finds this 0.
ran('0')
if not has_run then return 0 end
local free = redis.pcall('incrby', KEYS[1], ARGV[4])
if type(free) == 'table' then
  -- The permits are still taken.
  redis.pcall('set', KEYS[2], ARGV[1] .. ':1', 'px', ARGV[2])
  return free
end
if free > 0 then redis.pcall(ARGV[5], ARGV[6], free) end
return 1
