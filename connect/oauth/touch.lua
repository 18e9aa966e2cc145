-- Remembers that a connection was used, if it still is one.
--
-- KEYS   connection
-- ARGV   now
if redis.call('HEXISTS', KEYS[1], 'used') == 1 then
  redis.call('HSET', KEYS[1], 'used', ARGV[1])
end
return 1
