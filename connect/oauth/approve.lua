-- Approves a request. Until the code is redeemed, the account can approve it again: the newest scopes count.
--
-- KEYS   connection, request, attempts
-- ARGV   attempt, account, lifetime of the code, scopes, other fields and values of the connection
-- reply  the attempt from which the code is derived, followed by " again" if this one changed nothing; "" if the request cannot be
--        approved by this account
local request = call('HMGET', KEYS[2], 'state', 'approval', 'account')
if attempted(KEYS[3], ARGV[1]) then
  return request[2] or ARGV[1]
end
if request[1] == 'pending' then
  local now = text(time())
  call('HSET', KEYS[2], 'state', 'approved', 'approval', ARGV[1], 'account', ARGV[2])
  call('PEXPIRE', KEYS[2], ARGV[3])
  call('HSET', KEYS[1], 'created', now, 'used', now, 'scopes', unpack(ARGV, 4))
  call('PEXPIRE', KEYS[1], ARGV[3])
  recordAttempt(KEYS[3], ARGV[1])
  return ARGV[1]
end
local connection = call('HMGET', KEYS[1], 'state', 'scopes')
if request[1] ~= 'approved' or request[3] ~= ARGV[2] or connection[1] ~= 'code' then
  return ''
end
if connection[2] == ARGV[4] then
  return request[2] .. ' again'
end
call('HSET', KEYS[1], 'scopes', ARGV[4])
recordAttempt(KEYS[3], ARGV[1])
return request[2]
