-- KEYS[1]: the calls of a connection in one area: for each fingerprint "<milliseconds when> <idempotency key>"; and for
-- each record that one of them made, " <record>", the fingerprint.
-- ARGV: fingerprint, a fresh key, the window in milliseconds. Returns the key of the call.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local window = tonumber(ARGV[3])

local function within(kept)
	local at = string.match(kept, '^(%d+) ')
	return at and now - tonumber(at) < window and now >= tonumber(at)
end

local kept = redis.call('HGET', KEYS[1], ARGV[1])
if kept and within(kept) then
	return string.match(kept, ' (.+)$')
end

-- The hash ends with its last call's window, so that a connection which is never idle for so long would add to it without
-- end. As many calls as a connection's rate allows within the window, two fields each, stay below this.
local most = 4096
if redis.call('HLEN', KEYS[1]) >= most then
	local fields = redis.call('HGETALL', KEYS[1])
	local recent = {}
	for i = 1, #fields, 2 do
		recent[fields[i]] = within(fields[i + 1])
	end
	for i = 1, #fields, 2 do
		local record = string.sub(fields[i], 1, 1) == ' '
		if not (record and recent[fields[i + 1]] or not record and recent[fields[i]]) then
			redis.call('HDEL', KEYS[1], fields[i])
		end
	end
	if redis.call('HLEN', KEYS[1]) >= most then -- calls were not counted, for Redis was away or slow
		redis.call('DEL', KEYS[1])
	end
end
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', now) .. ' ' .. ARGV[2])
redis.call('PEXPIRE', KEYS[1], window)
return ARGV[2]
