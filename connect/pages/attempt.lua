-- Counts an attempt in a sliding window, by Redis's clock. Running it again with the same id changes nothing.
-- KEYS[1]  the counted attempts, by time
-- ARGV     the window in milliseconds, the limit, the attempt's id
-- Returns  0 if the attempt is allowed, or how many milliseconds to wait
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local window = tonumber(ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - window)
for _, id in ipairs(redis.call('ZRANGE', KEYS[1], '(' .. now, '+inf', 'BYSCORE')) do -- counted before the clock was set back
  redis.call('ZADD', KEYS[1], now, id)
end
if redis.call('ZSCORE', KEYS[1], ARGV[3]) then
  return 0
end
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then
  local oldest = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
  return oldest[2] + window - now
end
redis.call('ZADD', KEYS[1], now, ARGV[3])
redis.call('PEXPIRE', KEYS[1], window)
return 0
