
end

local out = together()
-- The answers count whatever becomes of the lists: an entry of nobody's goes when it comes to the head.
pcall(take_out)
return out
