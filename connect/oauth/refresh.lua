-- Uses a refresh token: the current one, or the previous one within the grace period.
--
-- KEYS   connection, attempts
-- ARGV   1 attempt                      2 digest of the token
--        3 nonce from which the tokens in the response are derived
--        4 digest of the next token     5 field of the access token
--        6 its scopes, or "*"           7 its lifetime
--        8 idle time of the connection  9 maximum lifetime of the connection
--       10 grace period                11 maximum repetitions
--       12 maximum number of access tokens
--       13 the connection's scopes, as the caller has read them
-- reply  "refreshed" and the remaining lifetime of the access token
--        "overused"  the previous token was used too often
--        "outdated"  a concurrent request has changed the nonce or the connection's scopes: try again
--        "reused"    an older token of the connection
--        "gone"      no such connection
local now, again = time(), attempted(KEYS[2], ARGV[1])
local c = call('HMGET', KEYS[1], 'state', 'current', 'previous', 'nonce', 'rotated', 'repeats', 'created', 'ends', ARGV[5],
  'scopes', 'told')
local ends, access = tonumber(c[8]), c[9]
if not again then
  if c[1] ~= 'live' or not c[2] then
    return {'gone'}
  end
  if c[10] ~= ARGV[13] then
    return {'outdated'}
  end
  if c[2] == ARGV[2] then
    ends = math.min(now + ARGV[8], c[7] + ARGV[9])
    if ends <= now then
      return {'gone'}
    end
    call('HSET', KEYS[1], 'current', ARGV[4], 'previous', ARGV[2], 'nonce', ARGV[3], 'rotated', text(now), 'repeats', 0,
      'ends', text(ends))
    call('PEXPIRE', KEYS[1], text(ends - now))
    -- A repetition may still name what the client was told before.
    if c[11] then
      call('HSET', KEYS[1], 'was_told', c[11])
    else
      call('HDEL', KEYS[1], 'was_told')
    end
    if ARGV[6] == '*' then
      call('HDEL', KEYS[1], 'told')
    end
  elseif c[3] == ARGV[2] and now - c[5] <= tonumber(ARGV[10]) then
    if c[4] ~= ARGV[3] then
      return {'outdated'}
    end
    if tonumber(c[6]) >= tonumber(ARGV[11]) then
      return {'overused'}
    end
    call('HINCRBY', KEYS[1], 'repeats', 1)
  else
    return {'reused'}
  end
  recordAttempt(KEYS[2], ARGV[1])

  if not access then
    -- Remove expired access tokens and those revoked before this rotation, which no repetition can restore. If too many are
    -- left, remove the oldest.
    local count, oldest, first = 0, nil, nil
    local all = call('HGETALL', KEYS[1])
    for i = 1, #all, 2 do
      if string.sub(all[i], 1, 2) == 'a:' then
        local stop, scopes = string.match(all[i + 1], '^(%d+) ?(.*)$')
        if tonumber(stop) <= now or scopes == '' and c[2] == ARGV[2] then
          call('HDEL', KEYS[1], all[i])
        elseif scopes ~= '' then
          count = count + 1
          if not first or tonumber(stop) < first then
            oldest, first = all[i], tonumber(stop)
          end
        end
      end
    end
    if count >= tonumber(ARGV[12]) then
      call('HDEL', KEYS[1], oldest)
    end
    access = text(math.min(now + ARGV[7], ends)) .. ' ' .. ARGV[6]
    call('HSET', KEYS[1], ARGV[5], access)
  end
end
-- The remaining lifetime is 0 if the token was revoked after its first response or the connection has ended.
local good = string.match(access or '', '^(%d+) ')
return {'refreshed', good and math.max(0, good - now) or 0}
