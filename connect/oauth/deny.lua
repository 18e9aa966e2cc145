-- Denies a request once.
--
-- KEYS   request
-- ARGV   milliseconds for which the denial is remembered
-- reply  1 if the request is denied, else 0
local state = redis.call('HGET', KEYS[1], 'state')
if state == 'pending' then
  redis.call('HSET', KEYS[1], 'state', 'denied')
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
  return 1
end
return state == 'denied' and 1 or 0
