-- Releases one of the owner's read holds. The last live reader frees the lock, and wakes one waiter in each client.
-- KEYS   [1] the lock's hash.   [2].. the owner's covers 1, 2, ..: one per hold of this owner that the caller knows, 16
--        at most.
-- ARGV   [1] owner.
--        [2] the hold to release: '', '-', '*', or ids (`common/holds.lua`).
--        [3] lease in ms for the owner's last remaining cover, if the covers end too soon for ARGV[7].
--        [4] the holds that remain to the caller, one `,id` each; '' = unknown.
--        [5] last moment in ms of the server's time; 0 = none.
--        [6] tag (`covers.lua`, which also defines cover and live).
--        [7] for how many ms the caller's other holds must be covered; 0 = not at all.
--        [8] publish command.   [9] channel.
-- Reply  `n`        n holds remain.
--        `{-1}`     this owner has no read hold left. Others hold the lock, or this owner holds it for writing.
--        `-n`       free; n clients on this node received the message.
--        `{0, text}` free, but the message was refused: the server's reason.
--        `{-8, id}` nothing was done: the caller must repeat the release with this id instead of '*'.
--        `{-7, at}` too late, nothing was done; at = the server's time in ms.
--        `nil`      nothing was released: the lock is free.
--        `text`     held by this other owner, or by this one for writing.
--        `{-2, n}`  the hold does not exist; the owner has n other read holds.
-- Idempotent: a repeat releases nothing, and answers nil, an owner or {-2, n}. Exception: hold '*'
-- (`common/holds.lua`). O(holds of this owner). Only some other readers are checked (`lease_needed` in `covers.lua`).
-- O(readers) only if hardly any reader is alive; the script then removes the dead readers of this crate. Same state and
-- message as Redisson's read lock, but without the latch key that Redisson writes per unlock. Differences:
-- - If the owner also holds the lock for writing, the lease of the hash is that of the write hold, and is not
--   shortened.
-- - Otherwise the hash lasts as long as the readers that remain are covered. If the hash then ends more than 1 s sooner
--   than before, one waiter in each client is woken. With many readers the hash may stay longer (`lease_needed`).
-- - In a command of many steps, the readers that remain are checked after the last step (`many/end.lua`). The reply is
--   {-1} even if all of them are dead and the lock is freed then.

local hash, owner, hold, tag = KEYS[1], ARGV[1], ARGV[2], ARGV[6]
local found = redis.call('hmget', hash, 'mode', owner, owner .. ':holds')
-- If the owner has a list, '' means the unlisted hold (`common/holds.lua`).
if hold == '' and found[3] then hold = '-' end
if hold ~= '' then load_holds() end

local function free(...)
  redis.call('del', ...)
  local told = redis.pcall(ARGV[8], ARGV[9], '0')
  local no = refused(told)
  if no then return {0, no.err} end
  return -told
end

local mode, count = found[1], tonumber(found[2]) or 0
if not mode or count == 0 then load_readers() end
if not mode then
  if redis.call('exists', hash) == 1 then return holder(hash) end
  redis.pcall(ARGV[8], ARGV[9], '0')
  return nil
end
if count == 0 then return holder(hash) end

local before, ids, left = '', '', 0
if hold ~= '' then
  before = found[3] or ''
  ids, left = holds.give_back(before, count, hold, ARGV[5])
  if not ids then return left end
end
local fields = mode == 'read' and redis.call('hlen', hash)
if left == 0 and count == 1 and fields == (before == '' and 2 or 3) then
  return free(hash, cover(tag, owner, 1))
end
local later = deferred and mode == 'read' and left == 0
if not later then load_readers() end
-- All covers that this script needs are read from here on, before the first write (reason: `covers.lua`).
local lease, longer = 0, false
if left > 0 then
  -- Covers are removed from the last one down, but holds end in any order. So if the owner may have holds that the
  -- caller does not know, the last remaining cover gets at least the longest lease of the owner's covers.
  local least, keep = tonumber(ARGV[7]), 0
  if ARGV[4] == '' or not holds.are_all(ids, left, ARGV[4]) or holds.too_late(ARGV[5]) then
    keep = covered(tag, owner, count, math.huge)
  end
  lease = math.max(least > 0 and tonumber(ARGV[3]) or 0, keep)
  least = math.max(least, keep)
  longer = least > 0 and covered(tag, owner, left, least) < least
end
-- If other clients use this owner, some covers to be removed are not in KEYS. They are read here, so that a server that
-- lacks them stops the script before the first write.
for n = math.max(left, #KEYS - 1) + 1, math.min(count, left + MOST) do redis.call('exists', cover(tag, owner, n)) end
local now, live, dead
if mode == 'read' and not later then
  now = redis.call('pttl', hash)
  if longer then now = math.max(now, lease) end
  live, dead = lease_needed(hash, tag, fields, now, {owner = owner, count = count, left = left, longer = longer and lease})
end
-- Redis does not roll a script back. If the first write is refused, nothing has changed. If a DEL is refused, the first
-- write is undone.
if left == 0 then
  redis.call('hdel', hash, owner, owner .. ':holds')
else
  holds.write(hash, owner, left, ids)
end
for n = left + 1, math.min(count, left + MOST) do
  local no = refused(redis.pcall('del', cover(tag, owner, n)))
  if no then
    load_holds()
    holds.put_back(hash, owner, count, before)
    return no
  end
end
if longer then
  redis.call('set', cover(tag, owner, left), '1', 'px', lease)
  if redis.call('pttl', hash) < lease then redis.call('pexpire', hash, lease) end
end
if later then
  deferred[#deferred + 1] = {hash = hash, tag = tag, publish = ARGV[8], channel = ARGV[9]}
elseif live and live <= 0 then
  return free(hash)
else
  give_lease(hash, now, live, dead, ARGV[8], ARGV[9])
end
return left > 0 and left or {-1}
