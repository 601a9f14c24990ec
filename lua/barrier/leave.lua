-- Removes a party from the round. With the token of the party's arrival, a late copy of the arrival then does nothing.
-- KEYS   [1] state.   [2] token (`common/once.lua`).   [3] parties.
-- ARGV   [1] sequence number: that of the arrival, or a higher one.   [2], [3] as in `common/once.lua`.   [4] owner.
-- Reply  `1` the party has left; `0` it had not arrived, or its round has ended.
--        `{-7, at}` too late, nothing was done; at = the server's time in ms.
-- Idempotent. O(log n): n = parties.

local before = ran_before()
if before and before[1] == -7 then return before end
if before and before[2] == 'left' then return 1 end
local left = redis.call('zrem', KEYS[3], ARGV[4])
-- '' = a later command has used the token, so its reply stays stored.
if before and before[2] == '' then return left end
ran(left == 1 and 'left' or 'gone')
return left
