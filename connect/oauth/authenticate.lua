-- Checks an access token and records the use of its connection.
--
-- KEYS   connection
-- ARGV   field of the access token, audience, precision of the last use, fields to return
-- reply  the token's scopes, or "*" for those of the connection; "1" if the use was recorded, or else ""; and the fields' values.
--        Empty if the token is invalid

-- A replica, and a master without the replicas that it requires, may lack a revocation. On both, this write fails; elsewhere, even
-- while memory is full, it does nothing.
local writable = redis.pcall('HDEL', KEYS[1], '')
local failure = type(writable) == 'table' and writable.err or ''
if string.find(failure, 'READONLY', 1, true) or string.find(failure, 'NOREPLICAS', 1, true) then
  return writable
end
local connection = call('HMGET', KEYS[1], ARGV[1], 'resource', 'created', 'used')
local ends, scopes = string.match(connection[1] or '', '^(%d+) (.+)$')
local now = time()
if not ends or tonumber(ends) <= now or connection[2] ~= ARGV[2] then
  return {}
end
local recorded = ''
if connection[3] == connection[4] or now - connection[4] >= tonumber(ARGV[3]) then
  recorded = redis.pcall('HSET', KEYS[1], 'used', text(now)) == 0 and '1' or '' -- pcall: tokens are also accepted while memory is full
end
return {scopes, recorded, unpack(call('HMGET', KEYS[1], unpack(ARGV, 4)))}
