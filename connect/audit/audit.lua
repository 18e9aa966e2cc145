-- Runs one step of an entry's life cycle. Running it again with the same arguments changes nothing.
--
-- KEYS   pending, streams...
-- ARGV   1 step: "begin", "end", "drop" or "sweep"   2 the entry's stream, one of KEYS   3 id of the entry
--        4 the entry as JSON                         5 approximate maximum length of its stream
--        6 maximum age of an entry, ms               7 age at which a pending entry becomes unknown, ms
--        8 approximate maximum length of the streams of unknown entries
-- reply  the entries that became unknown, as JSON
local call, step, stream, id = redis.call, ARGV[1], ARGV[2], ARGV[3]
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
  call('PEXPIRE', to, ARGV[6])
end

if step == 'begin' then
  call('HSETNX', KEYS[1], id, string.format('%.0f %s', now, ARGV[4]))
  call('PEXPIRE', KEYS[1], ARGV[6])
elseif step == 'drop' then
  call('HDEL', KEYS[1], id)
elseif step == 'end' then
  if call('HDEL', KEYS[1], id) == 1 then
    add(stream, ARGV[5], now, ARGV[4])
  else -- never pending, or this step's first reply was lost
    local found = false
    for _, entry in ipairs(call('XREVRANGE', stream, '+', '-', 'COUNT', 64)) do
      found = found or entry[2][2] == id
    end
    if not found then
      add(stream, ARGV[5], now, ARGV[4])
    end
  end
end

if step == 'sweep' then
  for i = 2, #KEYS do
    call('XTRIM', KEYS[i], 'MINID', string.format('%.0f', now - ARGV[6]))
  end
end

local unresolved = {}
if call('HLEN', KEYS[1]) > 0 then
  local known = {}
  for i = 2, #KEYS do
    known[KEYS[i]] = true
  end
  local pending = call('HGETALL', KEYS[1])
  for i = 1, #pending, 2 do
    local begun, entry = string.match(pending[i + 1], '^(%d+) (.*)$')
    local to = string.match(KEYS[1], '.*:') .. (string.match(entry, '"action":"([^"]*)"') or '')
    if known[to] and now - begun > tonumber(ARGV[7]) then -- a later version's action is for a gateway of that version
      id = pending[i]
      call('HDEL', KEYS[1], id)
      add(to, ARGV[8], begun, entry)
      unresolved[#unresolved + 1] = entry
    end
  end
end
return unresolved
