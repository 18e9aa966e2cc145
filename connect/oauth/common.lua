-- Functions shared by the scripts. Times are Redis's, in milliseconds, and so are durations.
--
-- A script may run twice for one attempt, because Server.run sends it again if its reply was lost, as does a Redis client with
-- retries. Attempts that changed something are stored in the list `attempts` of the connection, so that a second run returns the
-- same result.
local call = redis.call

local function time()
  local t = call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- Whole numbers without an exponent.
local function text(n)
  return string.format('%.0f', n)
end

-- A connection in a later format (versioned.Format) is neither used nor changed.
if tonumber(call('HGET', KEYS[1], 'format') or 1) > 1 then
  return redis.error_reply('LATER format of a connection')
end

local function attempted(attempts, attempt)
  for _, id in ipairs(call('LRANGE', attempts, 0, -1)) do
    if id == attempt then
      return true
    end
  end
  return false
end

local function recordAttempt(attempts, attempt)
  call('LPUSH', attempts, attempt)
  call('LTRIM', attempts, 0, 31)
  call('PEXPIRE', attempts, 120000)
end
