-- KEYS[1]: the calls of a connection in one area: for each fingerprint "<milliseconds when> <idempotency key>"; and for
-- each record that one of them made, " <record>", the fingerprint.
-- ARGV: fingerprint, a fresh key, the window in milliseconds. Returns the key of the call.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local window = tonumber(ARGV[3])
local kept = redis.call('HGET', KEYS[1], ARGV[1])
if kept then
	local at, key = string.match(kept, '^(%d+) (.+)$')
	if at and now - tonumber(at) < window and now >= tonumber(at) then
		return key
	end
end
if redis.call('HLEN', KEYS[1]) >= 1000 then
	redis.call('DEL', KEYS[1])
end
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', now) .. ' ' .. ARGV[2])
redis.call('PEXPIRE', KEYS[1], window)
return ARGV[2]
