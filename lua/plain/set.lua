-- Take the lock if nobody has it: what one command does, and it is sent as that command, but for many in one call.
-- KEYS   1 the lock
-- ARGV   1 value   2 NX   3 PX   4 lease in ms
-- Reply  OK   held; the lease runs from now
--        nil  somebody has it
-- Not idempotent: a repeat finds the lock taken by its own value. Whoever may have sent it before runs `plain/acquire`. O(1).
-- Redlock's page and the libraries that follow it: `SET name value NX PX lease`.

return redis.call('set', KEYS[1], unpack(ARGV))
