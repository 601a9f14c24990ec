-- Functions that read values of the plain lock. The build puts this file in front of the scripts that use them.
--
-- The key of a plain lock is a string: the holder's value. Each acquire has a value of its own, which is never reused.
-- Values of this crate start with the owner (a uuid of version 8 and a number), in one of three forms: text, hex or
-- base64 (`src/plain/value.rs`). Values of other libraries are only compared as a whole.

-- Guesses whether the holder with this value will announce its release: true if the value looks like one of this crate.
-- A wrong guess only makes a waiter poll too rarely or too often.
local function is_told(value)
  if string.find(value, '^%x%x%x%x%x%x%x%x%-%x%x%x%x%-8%x%x%x%-[89ab]%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x:%d') then return true end
  local size = #value
  if size == 48 or size == 76 then return string.find(value, '^%x%x%x%x%x%x%x%x%x%x%x%x8%x%x%x[89ab]%x+$') ~= nil end
  if size == 32 or size == 52 then return string.find(value, '^........[g-j]') ~= nil end
  return false
end

-- True if the value has one of the prefixes words[from].. of an owner, one per form. All forms are compared, because
-- the holder may use another form than the caller. The prefix in text form ends in `/`: without it, owner 1 would match
-- values of owner 12.
local function is_of(value, words, from)
  for i = from, #words do
    if string.sub(value .. '/', 1, #words[i]) == words[i] then return true end
  end
  return false
end
