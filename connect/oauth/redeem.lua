-- Redeems a code once.
--
-- KEYS   connection, request, attempts
-- ARGV   attempt, digest of the code, field of the access token, its lifetime, lifetime of the connection,
--        the scopes that the response names, fields and values
-- reply  "redeemed"
--        "used"  another attempt redeemed it
--        "gone"  no such code
if attempted(KEYS[3], ARGV[1]) then
  return 'redeemed'
end
local connection = call('HMGET', KEYS[1], 'code', 'state', 'scopes')
if connection[1] ~= ARGV[2] then
  return 'gone'
end
if connection[2] ~= 'code' then
  return 'used'
end
local now = time()
call('HSET', KEYS[1], 'state', 'live', 'ends', text(now + ARGV[5]),
  ARGV[3], text(now + ARGV[4]) .. ' *', unpack(ARGV, 7))
if connection[3] ~= ARGV[6] then -- approved again since the caller read them
  call('HSET', KEYS[1], 'told', ARGV[6])
end
call('PEXPIRE', KEYS[1], ARGV[5])
call('DEL', KEYS[2])
recordAttempt(KEYS[3], ARGV[1])
return 'redeemed'
