-- Releases one hold of the owner. The last release frees the lock, and wakes one waiter in each client.
-- KEYS   [1] the lock's hash.
-- ARGV   Trailing arguments that are '' or 0 may be omitted.
--        [1] owner.
--        [2] lease in ms for the holds that remain.
--        [3] publish command; '' = no message.
--        [4] the lock's channel, if there is a message.
--        [5] the hold to release: '', '-', '*', or ids (`common/holds.lua`).
--        [6] the holds that remain to the caller, one `,id` each; '' = unknown.
--        [7] last moment in ms of the server's time; 0 = none.
-- Reply  `n`        n holds remain.
--        `0`, `-n`  free; n clients on this node received the message.
--        `{0, text}` free, but the message was refused: the server's reason.
--        `{-8, id}` nothing was done: the caller must repeat the release with this id instead of '*'.
--        `{-7, at}` too late, nothing was done; at = the server's time in ms.
--        `nil`      nothing was released: the lock is free.
--        `text`     held by this other owner.
--        `{-2, n}`  the hold does not exist; the owner has n others.
-- Idempotent: a repeat releases nothing, and answers nil, an owner or {-2, n}. Exception: hold '*'
-- (`common/holds.lua`). Same state and message as Redisson's RLock or spin lock, but without the latch key that
-- Redisson writes per unlock.

local owner, hold, mine, last = ARGV[1], ARGV[5] or '', ARGV[6] or '', ARGV[7] or '0'
-- Usually the owner's count is the only field, and nothing else has to be read.
local fields = hold == '' and redis.call('hkeys', KEYS[1])
if not fields or fields[1] ~= owner or fields[2] then
  local found = redis.call('hmget', KEYS[1], owner, owner .. ':holds')
  -- If the owner has a list, '' means the unlisted hold (`common/holds.lua`).
  if hold == '' and found[2] then hold = '-' end
  load_holds()
  if not found[1] then return holds.somebody(KEYS[1]) end

  if hold ~= '' then
    local ids, left = holds.give_back(found[2] or '', tonumber(found[1]) or 0, hold, last)
    if not ids then return left end
    if left > 0 then
      holds.write(KEYS[1], owner, left, ids)
      holds.rearm(KEYS[1], ARGV[2], left, ids, mine, last)
      return left
    end
  end
end

redis.call('del', KEYS[1])
if (ARGV[3] or '') == '' then return 0 end
local told = redis.pcall(ARGV[3], ARGV[4], '0')
if type(told) == 'table' and told.err then return {0, told.err} end
return -told
