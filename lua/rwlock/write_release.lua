-- Releases one of the owner's write holds. The last release frees the lock, or leaves it to the owner's own read holds.
-- It wakes all waiters of every client.
-- KEYS   [1] the lock's hash.   [2] the owner's first cover.
-- ARGV   [1] owner.
--        [2] the hold to release: '', '-', '*', or ids (`common/holds.lua`).
--        [3] lease in ms for the holds that remain.
--        [4] the holds that remain to the caller, one `,id` each; '' = unknown.
--        [5] last moment in ms of the server's time; 0 = none.
--        [6] tag (`covers.lua`).
--        [7] publish command.   [8] channel.
-- Reply  `n`        n holds remain.
--        `-n`       no longer held for writing; n clients on this node received the message.
--        `{0, text}` the same, but the message was refused: the server's reason.
--        `{-8, id}` nothing was done: the caller must repeat the release with this id instead of '*'.
--        `{-7, at}` too late, nothing was done; at = the server's time in ms.
--        `nil`      nothing was released: the lock is free.
--        `text`     held by this other owner, or by this one for reading.
--        `{-2, n}`  the hold does not exist; the owner has n other write holds.
-- Idempotent: a repeat releases nothing, and answers nil, an owner or {-2, n}. Exception: hold '*'
-- (`common/holds.lua`). O(holds of this owner). Same state and message as Redisson's write lock, but without the latch
-- key that Redisson writes per unlock. Differences:
-- - If the lock is left to read holds, the message is sent too, so that other readers join at once.
-- - Read holds without a cover do not keep the lock. Covers are not shortened.

local hash, owner, hold, tag = KEYS[1], ARGV[1], ARGV[2], ARGV[6]
local field = owner .. ':write'
local found = redis.call('hmget', hash, 'mode', field, owner, field .. ':holds')
-- If the owner has a list, '' means the unlisted hold (`common/holds.lua`).
if hold == '' and found[4] then hold = '-' end
if hold ~= '' then load_holds() end
local mode, count, reads = found[1], tonumber(found[2]) or 0, tonumber(found[3]) or 0
if mode ~= 'write' or count == 0 then load_readers() end
if not mode then
  if redis.call('exists', hash) == 1 then return holder(hash) end
  redis.pcall(ARGV[7], ARGV[8], '1')
  return nil
end
if mode ~= 'write' or count == 0 then return holder(hash) end

if hold ~= '' then
  local ids, left = holds.give_back(found[4] or '', count, hold, ARGV[5])
  if not ids then return left end
  if left > 0 then
    -- Covers are read before the first write (reason: `covers.lua`).
    local lease = math.max(tonumber(ARGV[3]), covered(tag, owner, reads, math.huge))
    holds.write(hash, field, left, ids)
    holds.rearm(hash, lease, left, ids, ARGV[4], ARGV[5])
    return left
  end
end

if reads > 0 and covered(tag, owner, reads, 1) > 0 then
  -- The request to finish was for the writer (`common/revoke.lua`).
  redis.call('hdel', hash, field, field .. ':holds', 'revoke:holds')
  redis.call('hset', hash, 'mode', 'read')
else
  redis.call('del', hash)
end
local told = redis.pcall(ARGV[7], ARGV[8], '1')
local no = refused(told)
if no then return {0, no.err} end
return -told
