-- Changes what a connection may do.
--
-- KEYS   connection, request, attempts
-- ARGV   attempt, version of the connection that the change is for, scopes, "1" if it may do more without a question
-- reply  "changed"
--        "same"      the connection already may do this
--        "outdated"  another attempt has changed it since that version
--        "gone"      no such connection
if attempted(KEYS[3], ARGV[1]) then
  return 'changed'
end
local connection = call('HMGET', KEYS[1], 'state', 'version', 'scopes', 'unasked')
if connection[1] ~= 'live' then
  return 'gone'
end
if connection[3] == ARGV[3] and (connection[4] or '0') == ARGV[4] then
  return 'same'
end
if (connection[2] or '') ~= ARGV[2] then
  return 'outdated'
end
call('HSETNX', KEYS[1], 'told', connection[3])
local version = text(math.max(time(), (tonumber(ARGV[2]) or 0) + 1))
call('HSET', KEYS[1], 'version', version, 'scopes', ARGV[3], 'unasked', ARGV[4])
recordAttempt(KEYS[3], ARGV[1])
return 'changed'
