-- The script of the exact limiter. A call is counted in all of its counters or in none.
--
-- A counter is one string: a header, a table of writers and a log of entries, oldest first. Times are those of Redis (TIME), in
-- microseconds. Integers are unsigned and big-endian.
--
--   header  total    3 bytes  requests in the log
--           skew     7 bytes  added to TIME so that a counter's time never goes back
--           first    7 bytes  time of the oldest entry
--           span     5 bytes  from there to the newest entry
--           open     5 bytes  time from the first request of the newest entry to its last
--           writers  2 bytes  number of writers
--   writer  id       5 bytes  a gateway's local window for this counter
--           stored   6 bytes  number of the writer's last stored request
--           call     6 bytes  number of the last call that was counted; one less if it only added unsynced requests
--           at       7 bytes  time of the writer's last request
--   entry   delta    5 bytes  time since the previous entry (unused in the oldest)
--           count    2 bytes  number of requests, which all count from this time on
--
-- KEYS     for each call: its counters, and the mark of a request that may be accepted only once
-- ARGV[1]  for each call: flags (1 byte; 1 = count the request, 2 = accept it once), number of counters (1 byte), number of the
--          call (6 bytes), with flag 2 the request's ID (16) and when its mark expires, in seconds (5); then for each
--          counter: limit (3), window (5), writer (5), confirmed (6), seq (6), number of unsynced entries (2), and for each of
--          those, oldest first: count (2), age (5)
-- reply    for each counter: status (1), remaining (3), reset (5), retry (5), stored (6);
--          then with flag 2: ID of the request that was accepted (16); its own if it is not allowed; zeros if it is too late
--
-- A mark is the ID of the request that was accepted, so that a call that is run twice accepts its own request both times. A
-- request that is not allowed leaves no mark. One that was accepted before counts all the same. From a second before marks
-- expire, nothing is accepted: a clock that steps ahead, or that of a replica after a failover, makes no repetition new.
--
-- A writer numbers the requests that it allows; seq is the number of the last one. If stored is less than seq, the newest
-- seq - stored of its unsynced requests are added, so that none is added twice. The writer knows that requests up to number
-- confirmed were stored. If stored is less, Redis has lost data: the counter is not changed, and the status is LOST.
--
-- Numbers of calls are even and increase. A call with a lower number than the counter's is late: the writer has sent another one
-- since, assuming that this one was lost. It changes nothing, and the status is STALE. A call with the counter's number is a
-- repetition of one that was allowed.
--
-- A value that cannot be decoded is treated as absent.
local sub, floor, min, max = string.sub, math.floor, math.min, math.max
local call, pcall, pack, unpack = redis.call, redis.pcall, struct.pack, struct.unpack
local HEADER, HEAD = '>I3I7I7I5I5I2', 29
local WRITER, WRITE = '>I5I6I6I7', 24
local ENTRY, SIZE, TAIL, MAX, TOTAL = '>I5I2', 7, '>I2I5', 65535, 16777215
local CALL, COUNTER, UNSYNCED, UNIT, REPLY = '>I1I1I6', '>I3I5I5I6I6I2', '>I2I5', 7, '>I1I3I5I5I6'
local OK, LOST, STALE = 0, 1, 2
local ID, NONE, TILL = 16, pack('>I8I8', 0, 0), '>I5' -- bytes; too late

local input, number = ARGV[1], 0
local time = call('TIME')
local clock = time[1] * 1000000 + time[2]

-- width returns for how long an entry accepts requests. For high limits, a 256th of the window bounds the log.
local function width(limit, window)
  return limit > 256 and floor(window / 256) or 1
end

-- merge adds the newest n of a writer's unsynced requests to a log. `entries` entries of them are at `list`. It returns the log,
-- its total, the times of its oldest and newest entry and of the newest entry's first request, and the time of the writer's
-- last request.
local function merge(log, total, first, last, open, now, at, limit, window, list, entries, n)
  local all, count, time = {}, 0, first
  for pos = 1, #log, SIZE do
    local delta, held = unpack(ENTRY, log, pos)
    if pos > 1 then
      time = time + delta
    end
    count = count + 1
    all[count] = {time, held}
  end
  for i = entries - 1, 0, -1 do
    local held, age = unpack(UNSYNCED, input, list + UNIT * i)
    held = min(held, n)
    n = n - held
    if held > 0 and age < window then
      total, count = total + held, count + 1
      all[count] = {now - age, held}
      at = max(at, now - age)
    end
  end
  if count == 0 then
    return log, total, first, last, open, at
  end
  table.sort(all, function(x, y) return x[1] < y[1] end)
  local oldest = 1
  while total > TOTAL do
    local e, excess = all[oldest], total - TOTAL
    if e[2] > excess then
      e[2], total = e[2] - excess, TOTAL
    else
      total, oldest = total - e[2], oldest + 1
    end
  end
  -- Together the gateways may have allowed far more than the limit. Wider entries keep the log bounded.
  local wide = width(count > 512 and TOTAL or limit, window)
  local out, o, before, held = {}, 0, 0, 0
  last = 0
  for i = oldest, count do
    local time, n = all[i][1], all[i][2]
    if o == 0 or time - open >= wide or held + n > MAX then
      o, open, held, before = o + 1, time, 0, last
    end
    held, last = held + n, time
    if o == 1 then
      first, before = last, last
    end
    out[o] = pack(ENTRY, last - before, held)
  end
  return table.concat(out), total, first, last, open, at
end

-- apply adds a writer's unsynced requests to the counter at key, and if `counting`, one more request if it fits. The arguments
-- are at p. It returns the position after them; status, remaining, reset, retry and stored of the reply; and whether the call is
-- a repetition.
local function apply(key, p, counting)
  local limit, window, id, confirmed, seq, entries, list = unpack(COUNTER, input, p)
  local total, skew, first, last, open, now, log = 0, 0, 0, 0, 0, clock, ''
  local writers, own, stored, seen, at = '', nil, 0, 0, 0
  local dirty, merged, status, repeated = false, false, OK, false

  local raw = pcall('GET', key)
  if type(raw) == 'table' then
    if sub(raw.err, 1, 9) ~= 'WRONGTYPE' then
      error(raw.err, 0)
    end
  elseif raw and #raw >= HEAD + SIZE then
    local size, t, s, f, span, o, n = #raw, unpack(HEADER, raw)
    local l, pos = f + span, HEAD + n * WRITE + 1
    local at_end = clock + s
    if at_end < l then
      -- The clock was set back: the counter's time continues from the newest entry.
      s, at_end, dirty = s + l - at_end, l, true
    end
    local oldest = pos
    if l + window > at_end and (size - pos + 1) % SIZE == 0 then
      -- Drop expired requests. A log that ends before its newest request is malformed.
      while f + window <= at_end and pos + 2 * SIZE - 1 <= size do
        local count, delta = unpack(TAIL, raw, pos + 5)
        t, f, pos = t - count, f + delta, pos + SIZE
      end
      if t > 0 and f + window > at_end and pos + SIZE - 1 <= size then
        total, skew, first, last, open, now = t, s, f, l, l - o, at_end
        log, writers = sub(raw, pos), sub(raw, HEAD + 1, oldest - 1)
        for w = 1, #writers, WRITE do
          local i, st, se, a = unpack(WRITER, writers, w)
          if i == id then
            own, stored, seen, at = w, st, se, a
          end
        end
      end
    end
  end

  if seen > number then
    status = STALE
  elseif seen == number then
    repeated = true
  elseif stored < confirmed then
    status = LOST
  elseif stored < seq then
    log, total, first, last, open, at = merge(log, total, first, last, open, now, at, limit, window, list, entries, seq - stored)
    stored, merged = seq, true
  end

  local retry, counted = 0, false
  if repeated then
    counting = false
  elseif total >= limit then
    -- Find the entry whose expiry makes room for another request.
    local excess, time, pos = total - limit, first, 1
    local _, count = unpack(ENTRY, log)
    while count <= excess and pos + 2 * SIZE - 1 <= #log do
      local delta
      excess, pos = excess - count, pos + SIZE
      delta, count = unpack(ENTRY, log, pos)
      time = time + delta
    end
    retry = min(time + window - now, window)
  elseif counting and status == OK then
    local delta, held = 0, MAX
    if total == 0 then
      first, last, open = now, now, now
    else
      delta, held = unpack(ENTRY, log, #log - SIZE + 1)
    end
    if held < MAX and now - open < width(limit, window) then
      if #log == SIZE then
        first = now
      end
      log = sub(log, 1, -SIZE - 1) .. pack(ENTRY, delta + now - last, held + 1)
    else
      log, open = log .. pack(ENTRY, now - last, 1), now
    end
    total, last, at, stored, counted = total + 1, now, now, stored + 1, true
  end

  if total > 0 and status == OK and (counted or merged or dirty) then
    -- Remove writers whose last request has expired.
    local w = pack(WRITER, id, stored, counted and number or max(seen, number - 1), at)
    for i = 1, #writers, WRITE do
      if i ~= own then
        local _, _, _, a = unpack(WRITER, writers, i)
        if a + window > now then
          w = w .. sub(writers, i, i + WRITE - 1)
        end
      end
    end
    call('SET', key, pack(HEADER, total, skew, first, last - first, last - open, #w / WRITE) .. w .. log,
      'PX', floor((last + window - now) / 1000) + 1)
  end
  return list + UNIT * entries, status, limit > total and limit - total or 0,
    total > 0 and first + window - now or window, retry, stored, repeated
end

-- accept returns the ID of the request that is accepted with a mark: the given one if it is the first.
local function accept(mark, id, till)
  local left = till * 1000 - floor(clock / 1000)
  if left < 1000 then
    return NONE
  end
  return call('SET', mark, id, 'PX', left, 'NX') and id or call('GET', mark)
end

local out, o, k, p, size = {}, 0, 1, 1, #input
while p <= size do
  local flags, n, id, till
  flags, n, number, p = unpack(CALL, input, p)
  if flags >= 2 then
    id = sub(input, p, p + ID - 1)
    till, p = unpack(TILL, input, p + ID)
  end
  local counting, allowed = flags % 2 == 1, true
  if n > 1 and counting then
    -- All or nothing: check every counter before changing any.
    local q, status, retry, repeated, _ = p
    for i = k, k + n - 1 do
      q, status, _, _, retry, _, repeated = apply(KEYS[i], q, false)
      counting = counting and status == OK and retry == 0 and not repeated
    end
  end
  for i = k, k + n - 1 do
    local status, remaining, reset, retry, stored
    p, status, remaining, reset, retry, stored = apply(KEYS[i], p, counting)
    allowed = allowed and status == OK and retry == 0
    o = o + 1
    out[o] = pack(REPLY, status, remaining, reset, retry, stored)
  end
  k = k + n
  if id then
    o = o + 1
    out[o] = allowed and accept(KEYS[k], id, till) or id
    k = k + 1
  end
end
return table.concat(out)
