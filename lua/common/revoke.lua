-- Asks the lock's holder to finish: writes a mark that the holder's next renewal reports (`renew.lua`). Hold and lease
-- stay. The mark ends with the hash.
-- KEYS   [1] the lock's hash.
-- ARGV   [1] last moment in ms of the server's time.
-- Reply  1 = asked; 0 = nobody to ask: the lock is free, held by Java, or held for reading.
--        `{-7, at}` too late, nothing was done; at = the server's time in ms.
-- Idempotent. O(fields of the hash). A lock's hash has few fields, except if the lock is held for reading, and then the
-- script does not read them.
-- The mark's name ends in `:holds`, so scripts about owners skip it. If Java holds the lock, no mark is written,
-- because Redisson's write lock counts the fields of the hash.

load_holds()
local late = holds.too_late(ARGV[1])
if late then return late end
if redis.call('hget', KEYS[1], 'mode') == 'read' then return 0 end
for _, field in ipairs(redis.call('hkeys', KEYS[1])) do
  -- Our uuids have version 8, Java's have version 4. The version is the 15th character; 56 = '8'.
  if string.byte(field, 15) == 56 and string.sub(field, -6) ~= ':holds' then
    redis.call('hset', KEYS[1], 'revoke:holds', '+')
    return 1
  end
end
return 0
