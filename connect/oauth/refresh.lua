-- Uses a refresh token: the current one, or the one before within its grace.
--
-- KEYS   connection
-- ARGV   1 digest of the token         2 nonce, from which the tokens in the answer were derived
--        3 digest of the next token    4 digest of the access token
--        5 now                         6 end of the access token
--        7 its scopes                  8 end of the connection if the token is the current one
--        9 grace                      10 most repetitions
--       11 most access tokens       12 milliseconds that the connection lives then
-- All times are in milliseconds.
-- reply  "rotated"   the token was the current one
--        "repeated"  it was the one before, and the nonce is the one of its use
--        "often"     that, once too often
--        "moved"     it is neither with this nonce: look again
--        "reused"    it is an old one: the connection is ended
--        "gone"      there is no such connection
local call, now = redis.call, tonumber(ARGV[5])
local grant = call('HMGET', KEYS[1], 'state', 'current', 'previous', 'nonce', 'rotated', 'repeats', 'ends')
if grant[1] ~= 'live' or not grant[2] then
  return 'gone'
end
local verdict
if grant[2] == ARGV[1] then
  call('HSET', KEYS[1], 'current', ARGV[3], 'previous', ARGV[1], 'nonce', ARGV[2], 'rotated', ARGV[5], 'repeats', 0,
    'ends', ARGV[8])
  call('PEXPIRE', KEYS[1], ARGV[12])
  verdict = 'rotated'
elseif grant[3] == ARGV[1] and now - grant[5] <= tonumber(ARGV[9]) then
  if grant[4] ~= ARGV[2] then
    return 'moved'
  end
  if tonumber(grant[6]) >= tonumber(ARGV[10]) then
    return 'often'
  end
  call('HINCRBY', KEYS[1], 'repeats', 1)
  verdict = 'repeated'
else
  call('DEL', KEYS[1])
  return 'reused'
end

-- Forget the access tokens that have ended, and of the others the oldest if there are too many.
local field = 'a:' .. ARGV[4]
local count, oldest, first = 0, nil, nil
local all = call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  if string.sub(all[i], 1, 2) == 'a:' then
    local ends = tonumber(string.match(all[i + 1], '^%d+'))
    if all[i] == field then
      return verdict -- the answer that was given before
    elseif ends <= now then
      call('HDEL', KEYS[1], all[i])
    else
      count = count + 1
      if not first or ends < first then
        oldest, first = all[i], ends
      end
    end
  end
end
if count >= tonumber(ARGV[11]) then
  call('HDEL', KEYS[1], oldest)
end
call('HSET', KEYS[1], field, ARGV[6] .. ' ' .. ARGV[7])
return verdict
