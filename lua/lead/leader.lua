-- Returns the current leader.
-- KEYS   [1] the lock's hash.   [2] the lock's counter.
-- Reply  `{epoch, payload}` the leader has announced itself (`announce.lua`).
--        `{epoch}` the holder has not announced itself: a candidate that has just acquired, or a holder of the fenced
--        lock that is no candidate, such as Java. The epoch is the counter; '0' = there is no counter.
--        nil = nobody holds the lock.
-- Reads only. O(1).

local record = redis.call('hget', KEYS[1], 'leader:holds')
local epoch, at = string.match(record or '', '^(%d+):%d+:()')
if epoch then return {epoch, string.sub(record, at)} end
if redis.call('exists', KEYS[1]) == 0 then return nil end
return {redis.call('get', KEYS[2]) or '0'}
