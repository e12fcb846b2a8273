-- The cells of a log: the time of each in seven bytes, oldest first, so that any of them is found by its place. In a value stands before them, in
-- four bytes, how many had ended when that was last noted; they are dropped when the log is next written as a whole.
local function cells()
  local function at(log, place)
    return (struct.unpack('>I7', log, place * 7 - 6))
  end

  -- How many are earlier than `time`.
  local function before(log, time)
    local low, high = 0, #log / 7
    while low < high do
      local middle = math.floor((low + high) / 2)
      if at(log, middle + 1) < time then low = middle + 1 else high = middle end
    end
    return low
  end

  local function many(time, count)
    return string.rep(struct.pack('>I7', time), count)
  end

  -- With `count` cells at `time`, in order.
  local function with(log, time, count)
    local place = before(log, time + 1) * 7
    return string.sub(log, 1, place) .. many(time, count) .. string.sub(log, place + 1)
  end

  -- The clock went back by a period or more: cells from beyond were made just now.
  local function heal(log, now, period)
    local kept = before(log, now + period)
    return with(string.sub(log, 1, kept * 7), now, #log / 7 - kept)
  end

  -- The cells in a state, and a state of cells. What is no log has none.
  local function read(state)
    if #state < 4 or (#state - 4) % 7 ~= 0 then return '' end
    return string.sub(state, 5 + struct.unpack('>I4', state) * 7)
  end

  local function written(log)
    return '\0\0\0\0' .. log
  end

  return at, before, many, with, heal, read, written
end

