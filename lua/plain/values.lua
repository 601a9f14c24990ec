-- Functions that read values of the plain lock. The build puts this file in front of the scripts that use them.
--
-- Each acquire has a value of its own, which is never reused. Ours starts with the owner, a uuid of version 8 and a number,
-- as text, in hex or in base64 (`src/plain/value.rs`). Values of other libraries are only compared as a whole.

-- Guesses whether the release of this value's holder will be announced. After a wrong guess a waiter polls too seldom or too
-- often, no more.
local function is_told(value)
  if string.find(value, '^%x%x%x%x%x%x%x%x%-%x%x%x%x%-8%x%x%x%-[89ab]%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x:%d') then return true end
  local size = #value
  if size == 48 or size == 76 then return string.find(value, '^%x%x%x%x%x%x%x%x%x%x%x%x8%x%x%x[89ab]%x+$') ~= nil end
  if size == 32 or size == 52 then return string.find(value, '^........[g-j]') ~= nil end
  return false
end

-- True if the value has one of the prefixes words[from].. of an owner, one per form. Each form, because the holder may use
-- another one than the caller. The text prefix ends in `/`, so that it matches no longer number.
local function is_of(value, words, from)
  for i = from, #words do
    if string.sub(value .. '/', 1, #words[i]) == words[i] then return true end
  end
  return false
end
