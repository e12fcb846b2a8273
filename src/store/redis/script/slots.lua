-- Says how many slots of a concurrency limit a gateway has: to take more, to keep them, to give them back. KEYS: a hash with a field for
-- every gateway, `COUNT:EXPIRY:SEQUENCE`. ARGV: now, the gateway, how many it has from now on, how
-- many all may have, for how long it has them, a sequence number. A number is said anew as a whole, never added, so it may be said twice,
-- and after a loss of data all is right again as soon as everybody has said theirs; the sequence makes it harmless when something earlier
-- arrives later. That is also why 0 stays until it expires. Replies with 1 if it holds, 0 if there is no room, 2 if something later has been
-- said already, and with how many the others have.
local count, most, lease, sequence = ARGV[3] + 0, ARGV[4] + 0, ARGV[5] + 0, ARGV[6] + 0
local held = redis.pcall('HGETALL', KEYS[1])
if held.err then
  -- Not a hash, so not ours.
  call('DEL', KEYS[1])
  held = {}
end
local others, latest, ended = 0, now + lease, {}
for i = 1, #held, 2 do
  local has, expiry, said = string.match(held[i + 1], '^(%d+):(%d+):(%d+)$')
  has, expiry, said = whole(has), whole(expiry), whole(said)
  -- What lies further ahead than a lease is from before the clock went back.
  if not said or expiry <= now or expiry > now + lease + 86400000000 then
    if held[i] ~= ARGV[2] then ended[#ended + 1] = held[i] end
  elseif held[i] == ARGV[2] then
    if said >= sequence then return { 2, 0 } end
  else
    others, latest = others + has, math.max(latest, expiry)
  end
end
if count > 0 and count > most - others then return { 0, others } end
if #ended > 0 then call('HDEL', KEYS[1], unpack(ended)) end
call('HSET', KEYS[1], ARGV[2], string.format('%.0f:%.0f:%.0f', count, now + lease, sequence))
call('PEXPIRE', KEYS[1], math.ceil((latest - now) / 1000) + 1000)
return { 1, others }
