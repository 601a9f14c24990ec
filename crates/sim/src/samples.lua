-- Small scripts for the tests of the Lua side. A section starts with `--- name`.
--- half way
redis.call('set', 'k', 'v')
local value = redis.call('hget', 'k', 'f')
return value
--- get k
return redis.call('get', 'k')
--- pcall
return redis.pcall('hget', 'k', 'f').err
--- lua pcall
local ok, e = pcall(redis.call, 'hget', 'k', 'f')
return {ok, e.err}
--- unknown command
return redis.call('nope')
--- wrong arity
return redis.call('get')
--- numbers
redis.call('set', 'k', 3)
redis.call('set', 'f', 1.1)
return {redis.call('get', 'k'), redis.call('get', 'f')}
--- functions
local member = string.char(255, 0, 10) .. string.sub('abcd', 2, 3)
local added = redis.call('zadd', 'z', unpack({1, 'x', 2, member}))
local numbers = table.concat({math.min(1, 2), math.max(1, 2), math.ceil(2.5)}, ',')
return {redis.call('zrangebyscore', 'z', '(1', '+inf', 'WITHSCORES'), numbers, tonumber('12') + 1, added}
--- not a word
return redis.call('get', {})
--- clock
redis.call('set', 'c', '1', 'px', '5')
return redis.call('time')
--- tell
return redis.call('publish', KEYS[1], ARGV[1])
