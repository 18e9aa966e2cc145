-- Revokes an access token. Its field stays, without scopes, so that repeating the refresh that issued it does not restore it.
--
-- KEYS   connection
-- ARGV   field of the access token
-- reply  "revoked"
local ends = string.match(call('HGET', KEYS[1], ARGV[1]) or '', '^(%d+) ')
if ends then
  call('HDEL', KEYS[1], ARGV[1]) -- first, so that it works while Redis's memory is full
  call('HSET', KEYS[1], ARGV[1], ends)
end
return 'revoked'
