-- What the scripts of the plain lock share: what can be read in a value. Put in front of them at build time.
--
-- A value of ours is one acquire's, and never used again. It begins with the owner, a uuid of version 8 and a number, as text,
-- in hex or in base64 (`src/plain/value.rs`). Other libraries write what they like; theirs are only compared as a whole.

-- Will the release of whoever wrote this be announced? A guess: the worst of a wrong one is a waiter that looks late, or too
-- often.
local function is_told(value)
  if string.find(value, '^%x%x%x%x%x%x%x%x%-%x%x%x%x%-8%x%x%x%-[89ab]%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x:%d') then return true end
  local size = #value
  if size == 48 or size == 76 then return string.find(value, '^%x%x%x%x%x%x%x%x%x%x%x%x8%x%x%x[89ab]%x+$') ~= nil end
  if size == 32 or size == 52 then return string.find(value, '^........[g-j]') ~= nil end
  return false
end

-- Is this a value of the owner whose values all begin so, a word a form from this one on? Its holder may write another form than
-- whoever asks. Text ends in `/`, so that no longer number is taken for it.
local function is_of(value, words, from)
  for i = from, #words do
    if string.sub(value .. '/', 1, #words[i]) == words[i] then return true end
  end
  return false
end
