-- Runs one step of an entry's life cycle. Running it again with the same arguments changes nothing.
--
-- KEYS   1 pending                                   2... the entry's stream; for "sweep" all streams
-- ARGV   1 step: "begin", "end", "drop" or "sweep"   2 id of the entry
--        3 the entry as JSON                         4 approximate maximum length of its stream
--        5 maximum age of an entry, ms               6 age at which a pending entry becomes unknown, ms
--        7 approximate maximum length of the streams of unknown entries
-- reply  the entries of these streams that became unknown, as JSON
local call, step, stream, id = redis.call, ARGV[1], KEYS[2], ARGV[2]
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function add(to, max, begun, entry)
  -- Microseconds order the entries of different streams. The ID is too small if the clock was set back, or for a second entry.
  local function xadd(run, as)
    return run('XADD', to, 'MAXLEN', '~', max, as, 'id', id, 'time', string.format('%.0f', begun), 'entry', entry)
  end
  if type(xadd(redis.pcall, string.format('%.0f-%d', now, time[2] % 1000))) ~= 'string' then
    xadd(call, '*')
  end
  call('XTRIM', to, 'MINID', string.format('%.0f', now - ARGV[5]))
  call('PEXPIRE', to, ARGV[5])
end

if step == 'begin' then
  -- Access can be ended while Redis's memory is full. Redis checks only the first write of a script, which takes no memory here.
  if ({revoked = true, denied = true, ended = true})[string.match(stream, '%.(%a+)$')] then
    call('HDEL', KEYS[1], '')
  end
  call('HSETNX', KEYS[1], id, string.format('%.0f %s', now, ARGV[3]))
  call('PEXPIRE', KEYS[1], ARGV[5])
elseif step == 'drop' then
  call('HDEL', KEYS[1], id)
elseif step == 'end' then
  if call('HDEL', KEYS[1], id) == 1 then
    add(stream, ARGV[4], now, ARGV[3])
  else -- never pending, or this step's first reply was lost
    local found = false
    for _, entry in ipairs(call('XREVRANGE', stream, '+', '-', 'COUNT', 64)) do
      found = found or entry[2][2] == id
    end
    if not found then
      add(stream, ARGV[4], now, ARGV[3])
    end
  end
end

if step == 'sweep' then
  for i = 2, #KEYS do
    call('XTRIM', KEYS[i], 'MINID', string.format('%.0f', now - ARGV[5]))
  end
end

local unresolved = {}
if call('HLEN', KEYS[1]) > 0 then
  local known = {}
  for i = 2, #KEYS do
    known[KEYS[i]] = true
  end
  -- Not all: calls that wait long would make each other's steps slow. Further steps, or the next sweep, find the others.
  local pending = call('HRANDFIELD', KEYS[1], step == 'sweep' and 1000 or 16, 'WITHVALUES')
  for i = 1, #pending, 2 do
    local begun, entry = string.match(pending[i + 1], '^(%d+) (.*)$')
    local to = string.match(KEYS[1], '.*:') .. (string.match(entry, '"action":"([^"]*)"') or '')
    if known[to] and now - begun > tonumber(ARGV[6]) then -- others are for the sweep, or a gateway of a later version
      id = pending[i]
      call('HDEL', KEYS[1], id)
      add(to, ARGV[7], begun, entry)
      unresolved[#unresolved + 1] = entry
    end
  end
end
return unresolved
