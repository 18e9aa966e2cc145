-- Approves a request once.
--
-- KEYS   connection, request, attempts
-- ARGV   attempt, account, lifetime of the code, fields and values of the connection
-- reply  the attempt that approved the request, or "" if there is none by this account
if attempted(KEYS[3], ARGV[1]) then
  return ARGV[1]
end
local request = call('HMGET', KEYS[2], 'state', 'approval', 'account')
if request[1] == 'pending' then
  local now = text(time())
  call('HSET', KEYS[2], 'state', 'approved', 'approval', ARGV[1], 'account', ARGV[2])
  call('PEXPIRE', KEYS[2], ARGV[3])
  call('HSET', KEYS[1], 'created', now, 'used', now, unpack(ARGV, 4))
  call('PEXPIRE', KEYS[1], ARGV[3])
  recordAttempt(KEYS[3], ARGV[1])
  return ARGV[1]
end
if request[1] == 'approved' and request[3] == ARGV[2] and call('HGET', KEYS[1], 'state') == 'code' then
  return request[2]
end
return ''
