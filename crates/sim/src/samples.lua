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
--- not a word
return redis.call('get', {})
--- clock
redis.call('set', 'c', '1', 'px', '5')
return redis.call('time')
--- tell
return redis.call('publish', KEYS[1], ARGV[1])
