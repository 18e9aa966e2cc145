-- Ends a connection if a field of it has a value.
--
-- KEYS   connection, request
-- ARGV   field, value
-- reply  1 if it was ended, else 0
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then
  return 0
end
redis.call('DEL', KEYS[1], KEYS[2])
return 1
