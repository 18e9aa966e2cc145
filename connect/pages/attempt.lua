-- Takes one of the attempts that there may be in a window that ends now, by Redis's clock.
-- KEYS[1]  the attempts that were taken, by the time of each
-- ARGV     the window in milliseconds, how many there may be in it, and this attempt's id
-- Returns  0, or how many milliseconds to wait. Taking an attempt again takes no other.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local window = tonumber(ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - window)
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
