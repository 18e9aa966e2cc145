-- Denies a request once.
--
-- KEYS   request
-- ARGV   attempt, TTL of the denial
-- reply  the attempt that denied the request, or "" if it is not denied
local request = call('HMGET', KEYS[1], 'state', 'denial')
if request[1] == 'pending' then
  call('HSET', KEYS[1], 'state', 'denied', 'denial', ARGV[1])
  call('PEXPIRE', KEYS[1], ARGV[2])
  return ARGV[1]
end
return request[2] or ''
