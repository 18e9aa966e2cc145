-- What the scripts share. Redis's clock decides everything about time. It is in milliseconds, and so are all durations.
--
-- A script may run twice for one attempt: go-redis and the store send it again if its reply was lost. An attempt that has
-- changed something is therefore remembered in the list `attempts` of the connection, and a second run of it says what the
-- first one said, whatever happened in between.
local call = redis.call

local function time()
  local t = call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- Whole numbers without an exponent.
local function text(n)
  return string.format('%.0f', n)
end

local function did(attempts, attempt)
  for _, id in ipairs(call('LRANGE', attempts, 0, -1)) do
    if id == attempt then
      return true
    end
  end
  return false
end

local function remember(attempts, attempt)
  call('LPUSH', attempts, attempt)
  call('LTRIM', attempts, 0, 31)
  call('PEXPIRE', attempts, 120000)
end
