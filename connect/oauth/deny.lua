-- Denies a request that waits for a decision, or that the account has approved and whose code was not redeemed.
--
-- KEYS   connection, request
-- ARGV   attempt, account, TTL of the denial
-- reply  the attempt that denied the request, followed by " again" if that is another one; "" if it cannot be denied
local request = call('HMGET', KEYS[2], 'state', 'denial', 'account')
local withdrawn = request[1] == 'approved' and request[3] == ARGV[2] and call('HGET', KEYS[1], 'state') == 'code'
if request[1] == 'pending' or withdrawn then
  call('DEL', KEYS[1])
  call('HSET', KEYS[2], 'state', 'denied', 'denial', ARGV[1])
  call('PEXPIRE', KEYS[2], ARGV[3])
  return ARGV[1]
end
if not request[2] or request[2] == ARGV[1] then
  return request[2] or ''
end
return request[2] .. ' again'
