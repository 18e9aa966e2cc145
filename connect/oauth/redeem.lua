-- Redeems a code once.
--
-- KEYS   connection, request, attempts
-- ARGV   attempt, digest of the code, field of the access token, its lifetime, lifetime of the connection,
--        fields and values
-- reply  "redeemed"
--        "used"  another attempt redeemed it
--        "gone"  no such code
if attempted(KEYS[3], ARGV[1]) then
  return 'redeemed'
end
local connection = call('HMGET', KEYS[1], 'code', 'state')
if connection[1] ~= ARGV[2] then
  return 'gone'
end
if connection[2] ~= 'code' then
  return 'used'
end
local now = time()
call('HSET', KEYS[1], 'state', 'live', 'ends', text(now + ARGV[5]),
  ARGV[3], text(now + ARGV[4]) .. ' *', unpack(ARGV, 6))
call('PEXPIRE', KEYS[1], ARGV[5])
call('DEL', KEYS[2])
recordAttempt(KEYS[3], ARGV[1])
return 'redeemed'
