-- Ends a connection.
--
-- KEYS   connection, request, attempts; or only the connection while the slot migrates: a repetition returns "gone" then
-- ARGV   attempt
-- reply  "ended"
--        "gone"  no such connection
if KEYS[3] and attempted(KEYS[3], ARGV[1]) then
  return 'ended'
end
if call('DEL', KEYS[1]) == 0 then
  return 'gone'
end
if KEYS[3] then
  call('DEL', KEYS[2])
  recordAttempt(KEYS[3], ARGV[1])
end
return 'ended'
