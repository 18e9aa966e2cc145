-- Runs one step for the calls that create or start something.
--
-- KEYS[1]  hash of a connection's calls in one area: fingerprint -> "<time in ms> <idempotency key>"; for each record that
--          one of them created, " <record>" -> "<fingerprint> <idempotency key>"; "!" -> the attempt that stored the last of
--          these; and "" -> "<time in ms> pruned"
-- ARGV     step, window in ms, and the arguments of the step:
--            key, fingerprint, new idempotency key
--              Returns the idempotency key of a call: the stored one if the same call was made within the window, or else the
--              new one.
--            renew, fingerprint, idempotency key
--              Begins the window of a call again, unless it has another key by now.
--            created, fingerprint, idempotency key, record, attempt
--              Stores which record a call created. Returns "known" if it was stored before, or else "". A Redis client may run it
--              again for one attempt, if the reply was lost.
--            forget, record
--              Forgets a created record, and the idempotency key of the call that created it unless a later call has replaced
--              the key.
local call, calls, step, window = redis.call, KEYS[1], ARGV[1], tonumber(ARGV[2])
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- keyWithin returns the idempotency key of a call that was made within the window.
local function keyWithin(kept)
	local at, key = string.match(kept or '', '^(%d+) (.+)$')
	return at and math.abs(now - at) < window and key -- also after the clock has stepped back
end

local function set(field, value)
	call('HSET', calls, field, value)
	call('PEXPIRE', calls, window)
end

local function at(value) -- now
	return string.format('%.0f', now) .. ' ' .. value
end

-- prune removes what is older than the window. The hash expires one window after its last call, so on a busy connection it
-- would grow without bound.
local function prune()
	local fields = call('HGETALL', calls)
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
			call('HDEL', calls, fields[i])
		end
	end
	-- The calls that the rate limit allows within the window, two fields each, stay below this maximum.
	if call('HLEN', calls) >= 4096 then -- calls passed the rate limiter while it was unavailable
		call('DEL', calls)
	end
	set('', at('pruned'))
end

if step == 'key' then
	local kept = keyWithin(call('HGET', calls, ARGV[3]))
	if kept then
		return kept
	end
	local pruned = string.match(call('HGET', calls, '') or '', '^%d+')
	if not pruned or math.abs(now - pruned) >= 60000 then -- not at every call, because it reads them all
		prune()
	end
	set(ARGV[3], at(ARGV[4]))
	return ARGV[4]
end

if step == 'renew' then
	if string.match(call('HGET', calls, ARGV[3]) or '', ' (.+)$') == ARGV[4] then
		set(ARGV[3], at(ARGV[4]))
	end
	return ''
end

if step == 'created' then
	local record, value = ' ' .. ARGV[5], ARGV[3] .. ' ' .. ARGV[4]
	local before = call('HMGET', calls, record, '!')
	set(record, value)
	if before[1] == value and before[2] ~= ARGV[6] then
		return 'known'
	end
	set('!', ARGV[6])
	return ''
end

if step == 'forget' then
	local record = ' ' .. ARGV[3]
	local fingerprint, key = string.match(call('HGET', calls, record) or '', '^(%S+) (.+)$')
	if fingerprint then
		if string.match(call('HGET', calls, fingerprint) or '', ' (.+)$') == key then
			call('HDEL', calls, fingerprint)
		end
		call('HDEL', calls, record)
	end
	return ''
end
