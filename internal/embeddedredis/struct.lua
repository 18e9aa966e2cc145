-- What the rate limit script needs of Redis's library struct: big-endian unsigned integers.
local struct = {
  unpack = function(format, data, pos)
    local out, n = {}, 0
    pos = pos or 1
    for size in string.gmatch(format, '%d+') do
      local v = 0
      size = tonumber(size)
      for i = pos, pos + size - 1 do
        v = v * 256 + string.byte(data, i)
      end
      n, pos = n + 1, pos + size
      out[n] = v
    end
    out[n + 1] = pos
    return unpack(out)
  end,
  pack = function(format, ...)
    local out, n = {}, 0
    for size in string.gmatch(format, '%d+') do
      n = n + 1
      local v, s = select(n, ...), ''
      for _ = 1, tonumber(size) do
        s, v = string.char(v % 256) .. s, math.floor(v / 256)
      end
      out[n] = s
    end
    return table.concat(out)
  end,
}
