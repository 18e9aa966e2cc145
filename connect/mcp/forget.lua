-- Forgets a created record, and the idempotency key of the call that created it unless a later call has replaced the key.
--
-- KEYS[1]  the hash of idempotency.lua
-- ARGV     field of the record
local created = redis.call('HGET', KEYS[1], ARGV[1])
if created then
	local fingerprint, key = string.match(created, '^(%S+) (.+)$')
	local kept = redis.call('HGET', KEYS[1], fingerprint)
	if kept and string.match(kept, ' (.+)$') == key then
		redis.call('HDEL', KEYS[1], fingerprint)
	end
	redis.call('HDEL', KEYS[1], ARGV[1])
end
