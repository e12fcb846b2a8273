-- Says that a gateway lives. KEYS: a sorted set of gateways by the time of their last beat. ARGV: now, the
-- gateway, the time between beats in microseconds (0: it leaves). Replies with how many live.
if call('TYPE', KEYS[1]).ok ~= 'zset' then call('DEL', KEYS[1]) end
local every = ARGV[3] + 0
if every == 0 then
  call('ZREM', KEYS[1], ARGV[2])
else
  call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now - 3 * every))
  -- What lies ahead is from before the clock went back.
  call('ZREMRANGEBYSCORE', KEYS[1], string.format('%.0f', now + 3 * every), '+inf')
  call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[2])
  call('PEXPIRE', KEYS[1], math.ceil(3 * every / 1000) + 1000)
end
return call('ZCARD', KEYS[1])
