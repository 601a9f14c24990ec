-- Acquires the lock if it is free. A single acquire is sent as the command SET. This script is for many
-- acquires in one call.
-- KEYS   [1] the lock.
-- ARGV   [1] value.   [2] NX.   [3] PX.   [4] lease in ms.
-- Reply  OK = held, the lease runs from now; nil = somebody holds the lock.
-- Not idempotent: a repeat finds the lock taken by its own value. After a possible earlier copy use `plain/acquire`. O(1).
-- Redlock's page and the libraries that follow it send the same: `SET name value NX PX lease`.

return redis.call('set', KEYS[1], unpack(ARGV))
