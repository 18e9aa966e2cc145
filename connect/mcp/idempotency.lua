-- Returns the idempotency key of a call: the stored one if the same call was made within the window, or else a new one.
--
-- KEYS[1]  hash of a connection's calls in one area: fingerprint -> "<time in ms> <idempotency key>", and for each record
--          that one of them created, " <record>" -> "<fingerprint> <idempotency key>"
-- ARGV     fingerprint, new idempotency key, window in ms
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local window = tonumber(ARGV[3])

-- keyWithin returns the idempotency key of a call that was made within the window.
local function keyWithin(kept)
	local at, key = string.match(kept, '^(%d+) (.+)$')
	return at and now - tonumber(at) < window and now >= tonumber(at) and key
end

local kept = redis.call('HGET', KEYS[1], ARGV[1])
if kept and keyWithin(kept) then
	return keyWithin(kept)
end

-- The hash expires one window after its last call, so on a busy connection it would grow without bound. The calls that the
-- rate limit allows within the window, two fields each, stay below this maximum.
local most = 4096
if redis.call('HLEN', KEYS[1]) >= most then
	local fields = redis.call('HGETALL', KEYS[1])
	local recent = {} -- calls, as in the fields of records
	for i = 1, #fields, 2 do
		local key = keyWithin(fields[i + 1])
		if key then
			recent[fields[i] .. ' ' .. key] = true
		end
	end
	for i = 1, #fields, 2 do
		local record = string.sub(fields[i], 1, 1) == ' '
		if not (record and recent[fields[i + 1]] or not record and keyWithin(fields[i + 1])) then
			redis.call('HDEL', KEYS[1], fields[i])
		end
	end
	if redis.call('HLEN', KEYS[1]) >= most then -- calls passed the rate limiter while it was unavailable
		redis.call('DEL', KEYS[1])
	end
end
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', now) .. ' ' .. ARGV[2])
redis.call('PEXPIRE', KEYS[1], window)
return ARGV[2]
