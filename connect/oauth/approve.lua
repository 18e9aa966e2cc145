-- Approves a request once.
--
-- KEYS   request, connection
-- ARGV   nonce, account, milliseconds that the code lives, fields and values of the connection
-- reply  nonce of the approval that holds, or "" if there is none for this account
local state = redis.call('HMGET', KEYS[1], 'secret', 'state', 'nonce', 'account')
if not state[1] then
  return ''
end
if state[2] == 'pending' then
  redis.call('HSET', KEYS[1], 'state', 'approved', 'nonce', ARGV[1], 'account', ARGV[2])
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  redis.call('HSET', KEYS[2], unpack(ARGV, 4))
  redis.call('PEXPIRE', KEYS[2], ARGV[3])
  return ARGV[1]
end
if state[2] == 'approved' and state[4] == ARGV[2] and redis.call('HGET', KEYS[2], 'state') == 'code' then
  return state[3]
end
return ''
