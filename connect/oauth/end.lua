-- Ends a connection.
--
-- KEYS   connection, request, attempts
-- ARGV   attempt
-- reply  1 if this attempt ended it, else 0
if attempted(KEYS[3], ARGV[1]) then
  return 1
end
if call('DEL', KEYS[1]) == 0 then
  return 0
end
call('DEL', KEYS[2])
recordAttempt(KEYS[3], ARGV[1])
return 1
