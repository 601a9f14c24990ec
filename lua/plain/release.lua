-- Releases the lock if it has a given value, and wakes one waiter in each client of this crate.
-- KEYS   [1] the lock.
-- ARGV   [1] publish command.
--        [2] the lock's channel.
--        [3].. one or more values (`values.lua`); the lock is released if it has one of them.
--        If [3] is '', [4].. are the prefixes of the owner's values, one per form. Then nothing is released.
-- Reply  `0`, `-n`  free; n clients on this node received the message.
--        `{0, text}` free, but the message was refused: the server's reason.
--        `{-8, '+' .. value}` nothing was done: [3] is '', and the owner holds the lock with this value.
--        `nil`      nothing was done: the lock is free.
--        `text`     nothing was done: the lock has this other value.
-- Idempotent: a value is never reused, so a repeat finds no value or another one. O(1).

local found = redis.call('get', KEYS[1])
if not found then return nil end
if ARGV[3] == '' then
  if is_of(found, ARGV, 4) then return {-8, '+' .. found} end
  return found
end
local is_ours = false
for i = 3, #ARGV do is_ours = is_ours or found == ARGV[i] end
if not is_ours then return found end

redis.call('del', KEYS[1])
local told = redis.pcall(ARGV[1], ARGV[2], '0')
if type(told) == 'table' and told.err then return {0, told.err} end
return -told
