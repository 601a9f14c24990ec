
end

local out = together()
-- The replies count even if `take_out` fails: an entry without a waiter is removed when it is the head.
pcall(take_out)
return out
