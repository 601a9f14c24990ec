
end
steps[#steps + 1] = function(KEYS, ARGV)
