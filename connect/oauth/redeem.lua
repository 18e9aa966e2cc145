-- Redeems a code once. The second attempt ends the connection.
--
-- KEYS   connection, request
-- ARGV   digest of the code, id of the attempt, milliseconds that the connection lives, fields and values
-- reply  "redeemed", "replayed" or "gone"
local grant = redis.call('HMGET', KEYS[1], 'code', 'state', 'attempt')
if grant[1] ~= ARGV[1] then
  return 'gone'
end
if grant[2] == 'code' then
  redis.call('HSET', KEYS[1], 'state', 'live', 'attempt', ARGV[2], unpack(ARGV, 4))
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  redis.call('DEL', KEYS[2])
  return 'redeemed'
end
if grant[3] == ARGV[2] then
  return 'redeemed' -- the same attempt, whose first answer was lost on the way to the gateway
end
redis.call('DEL', KEYS[1])
return 'replayed'
