-- The exact limiter: takes over buckets, each take all or nothing.
--
-- A bucket is one string, a header and a log of entries, oldest first. Times are
-- Redis's own (TIME), in microseconds; integers are big-endian.
--
--   header  total  3 bytes  requests in the log
--           skew   7 bytes  added to TIME so that a bucket's time never goes back
--           first  7 bytes  time of the oldest entry
--           span   5 bytes  from there to the newest entry
--           open   5 bytes  how long the newest entry has been taking requests
--   entry   delta  5 bytes  time since the entry before (of the oldest: unused)
--           count  2 bytes  requests, all counted as if they had come at its time
--
-- KEYS   the buckets of all takes, in order, and perhaps the marker behind them
-- ARGV   for each take: 4*buckets + (1: charge nothing) + (2: debts follow), then
--        for each bucket: limit, window, and if debts follow: how many, and for
--        each debt, oldest first: count, age
-- reply  for each take: 1 or 0, then for each bucket: remaining, reset, retry;
--        then, of the marker: its time, and how long ago that is
--
-- The marker holds the time from when on Redis remembers: who finds another time
-- than before knows that Redis has lost all that was entered earlier, and nothing
-- of what came later. Without any take the script tries out on it whether Redis
-- can be written to.
--
-- A debt is what a gateway admitted by itself, or what Redis has forgotten. It is
-- put where it belongs in the log. Of more than the limit the newest are kept:
-- when one of them leaves, all that was dropped has left. To charge nothing
-- leaves the bucket as it is, unless debts follow.
local sub, floor, call = string.sub, math.floor, redis.call
local HEADER, HEAD, ENTRY, SIZE, TAIL, MAX = '>I3I7I7I5I5', 27, '>I5I2', 7, '>I2I5', 65535

local pack, unpack
local struct = rawget(_G, 'struct')
if struct then
  pack, unpack = struct.pack, struct.unpack
else
  -- The embedded stand-in of `gatehouse demo` has no struct library.
  local byte, char = string.byte, string.char
  local sizes = {[HEADER] = {3, 7, 7, 5, 5}, [ENTRY] = {5, 2}, [TAIL] = {2, 5}}
  unpack = function(format, data, pos)
    local out = {}
    pos = pos or 1
    for n, size in ipairs(sizes[format]) do
      local v = 0
      for i = pos, pos + size - 1 do
        v = v * 256 + byte(data, i)
      end
      out[n], pos = v, pos + size
    end
    return out[1], out[2], out[3], out[4], out[5]
  end
  pack = function(format, ...)
    local out = {}
    for n, size in ipairs(sizes[format]) do
      local v, s = select(n, ...), ''
      for _ = 1, size do
        s, v = char(v % 256) .. s, floor(v / 256)
      end
      out[n] = s
    end
    return table.concat(out)
  end
end

local time = call('TIME')
local clock = time[1] * 1000000 + time[2]

-- width is for how long an entry takes requests: a 256th of the window bounds
-- the log, whatever the limit.
local function width(limit, window)
  return limit > 256 and floor(window / 256) or 1
end

-- settle merges the debts at ARGV[p] into a log.
local function settle(p, limit, window, now, total, first, log)
  local entries, n = {}, 0
  local at = first
  for pos = 1, #log, SIZE do
    local delta, count = unpack(ENTRY, log, pos)
    if pos > 1 then
      at = at + delta
    end
    n = n + 1
    entries[n] = {at, count}
  end
  for i = p + 1, p + 2 * tonumber(ARGV[p]), 2 do
    local count, age = tonumber(ARGV[i]), tonumber(ARGV[i + 1])
    if count > 0 and age < window then
      total, n = total + count, n + 1
      entries[n] = {now - age, count}
    end
  end
  table.sort(entries, function(a, b) return a[1] < b[1] end)
  local oldest = 1
  while total > limit do
    local e, excess = entries[oldest], total - limit
    if e[2] > excess then
      e[2], total = e[2] - excess, limit
    else
      total, oldest = total - e[2], oldest + 1
    end
  end

  local wide, out, o = width(limit, window), {}, 0
  local before, last, open, held = 0, 0, 0, 0
  for i = oldest, n do
    local e = entries[i]
    if o > 0 and e[1] - open < wide and held + e[2] <= MAX then
      held = held + e[2]
    else
      o, open, held, before = o + 1, e[1], e[2], last
    end
    last = e[1]
    if o == 1 then
      first, before = last, last
    end
    out[o] = pack(ENTRY, last - before, held)
  end
  return total, first, last, open, table.concat(out)
end

-- take looks at the bucket with arguments at p and, if charge, enters a request
-- if it fits. It gives the position after its arguments and the reply.
local function take(key, p, debts, charge, write)
  local limit, window = tonumber(ARGV[p]), tonumber(ARGV[p + 1])
  local total, skew, first, last, open, now, log = 0, 0, 0, 0, 0, clock, ''
  local dirty = false
  p = p + 2

  local raw = call('GET', key)
  if raw then
    total, skew, first, last, open = unpack(HEADER, raw)
    last, now = first + last, clock + skew
    if now < last then
      -- The clock was set back: time goes on from the newest entry.
      skew, now, dirty = skew + last - now, last, true
    end
    if last + window <= now then
      total, skew, now = 0, 0, clock
    else
      local pos = HEAD + 1
      while first + window <= now do
        local count, delta = unpack(TAIL, raw, pos + 5)
        total, first, pos = total - count, first + delta, pos + SIZE
      end
      log, open = sub(raw, pos), last - open
    end
  end

  if debts then
    total, first, last, open, log = settle(p, limit, window, now, total, first, log)
    dirty = true
    p = p + 1 + 2 * tonumber(ARGV[p])
  end

  local retry = 0
  if total >= limit then
    -- So many of the oldest have to leave that one more fits.
    local excess, at, pos = total - limit, first, 1
    local _, count = unpack(ENTRY, log)
    while count <= excess do
      local delta
      excess, pos = excess - count, pos + SIZE
      delta, count = unpack(ENTRY, log, pos)
      at = at + delta
    end
    retry = at + window - now
  elseif charge then
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
    total, last, dirty = total + 1, now, true
  end

  if dirty and write and total > 0 then
    call('SET', key, pack(HEADER, total, skew, first, last - first, last - open) .. log,
      'PX', floor((last + window - now) / 1000) + 1)
  end
  return p, limit > total and limit - total or 0, total > 0 and first + window - now or window, retry
end

local reply, r, k, a, argc = {}, 0, 1, 1, #ARGV
while a <= argc do
  local code = tonumber(ARGV[a])
  local n, debts = floor(code / 4), code % 4 >= 2
  local charge = code % 2 == 0
  local write = charge or debts
  a = a + 1
  if n > 1 and charge then
    -- All or nothing: every bucket is looked at before any is charged.
    local p = a
    for i = k, k + n - 1 do
      local _, retry
      p, _, _, retry = take(KEYS[i], p, debts, false, false)
      charge = charge and retry == 0
    end
  end
  r = r + 1
  local verdict = r
  reply[verdict] = 1
  for i = k, k + n - 1 do
    local retry
    a, reply[r + 1], reply[r + 2], retry = take(KEYS[i], a, debts, charge, write)
    reply[r + 3] = retry
    r = r + 3
    if retry > 0 then
      reply[verdict] = 0
    end
  end
  k = k + n
end
if KEYS[k] then
  local written = call('GET', KEYS[k])
  local mark = tonumber(written)
  if not mark then
    call('SET', KEYS[k], string.format('%.0f', clock))
    mark = clock
  elseif argc == 0 then
    call('SET', KEYS[k], written, 'NX')
  end
  reply[r + 1], reply[r + 2] = mark, clock - mark
end
return reply
