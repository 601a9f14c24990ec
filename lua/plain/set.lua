-- Acquires the lock if it is free. A single acquire is sent as the command SET. This script is for many acquires in one
-- call (`common/many`).
-- KEYS   [1] the lock.
-- ARGV   [1] value (`values.lua`).   [2] NX.   [3] PX.   [4] lease in ms.
-- Reply  OK = held, the lease runs from now; nil = somebody holds the lock.
-- Not idempotent: a repeat finds the lock taken by its own value. If the outcome is unknown, use `plain/acquire`. O(1).
-- Redlock's description on redis.io, and libraries that follow it, send the same: `SET name value NX PX lease`.

return redis.call('set', KEYS[1], unpack(ARGV))
