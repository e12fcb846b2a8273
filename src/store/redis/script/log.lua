-- A charge of a log, which is read in slices and written at its end, so that what it costs does not grow with the log. Returns whether it exceeds, the
-- cells in use, when all and when enough of them end, what writes it; the value, if it is of another quota,
-- and whether that goes over to this one.
local function log_charge(key, quota, numbers, carried)
  local at, _, many, with, heal, _, written = cells()
  local limit, period, cost = struct.unpack('>I7I7I7', numbers)
  local head = #quota + 4
  -- As many cells are read at once as cost no more than one.
  local FIRST, NEXT = 64, 16

  -- Cells that are not in the store, or not under this quota.
  local function in_hand(text)
    local function cell(place) return at(text, place) end
    local function rest(ended) return string.sub(text, ended * 7 + 1) end
    return { count = #text / 7, noted = 0, cell = cell, rest = rest }
  end

  -- The log in the store; or the value, if it is of another quota.
  local function stored()
    local slice = redis.pcall('GETRANGE', key, '0', head + FIRST * 7 - 1)
    if type(slice) ~= 'string' or slice == '' then return end
    if string.sub(slice, 1, #quota) ~= quota then return nil, call('MGET', key)[1] end
    local bytes = #slice - head
    if bytes == FIRST * 7 then bytes = call('STRLEN', key) - head end
    if bytes <= 0 or bytes % 7 ~= 0 then return end
    local count, noted = bytes / 7, struct.unpack('>I4', slice, #quota + 1)
    if noted > count then return end
    local from, read = 0, string.sub(slice, head + 1)
    local function cell(place)
      if place <= from or (place - from) * 7 > #read then
        from = place - 1
        read = call('GETRANGE', key, head + from * 7, head + (from + NEXT) * 7 - 1)
      end
      return at(read, place - from)
    end
    local function rest(ended) return call('GETRANGE', key, head + ended * 7, '-1') end
    return { count = count, noted = noted, cell = cell, rest = rest, stays = true }
  end

  -- How many cells are earlier than `time`. Most of them have been noted.
  local function before(log, time)
    local low, step = log.noted, 1
    while low + step <= log.count and log.cell(low + step) < time do
      low, step = low + step, step * 2
    end
    local high = math.min(low + step - 1, log.count)
    while low < high do
      local middle = math.ceil((low + high) / 2)
      if log.cell(middle) < time then low = middle else high = middle - 1 end
    end
    return low
  end

  local log, other = stored()
  local healed, moves, moved = false, false, 0
  if other then
    moved, moves = carried(other, quota, numbers)
    log = in_hand(many(now, math.min(moved, limit)))
  end
  log = log or in_hand('')
  local ended, newest = log.noted, 0
  if log.count > ended then
    newest = log.cell(log.count)
    -- What had ended when the newest was written has ended for good, even if the clock went back since.
    ended = before(log, math.max(newest, now) - period + 1)
    if newest >= now + period then
      log, ended, healed = in_hand(heal(log.rest(ended), now, period)), 0, true
      newest = log.cell(log.count)
    end
  end
  local used = log.count - ended
  local reset = used > 0 and math.max(newest + period - now, 0) or 0
  local exceeds, retry = cost > 0 and cost > limit - used, 0
  if exceeds and cost <= limit then retry = math.max(log.cell(ended + used + cost - limit) + period - now, 0) end

  local function put(text, time)
    call('SET', key, quota .. written(text), 'PX', math.ceil(time / 1000) + 1000)
  end
  local write
  if exceeds and (healed or moves) then
    write = function() put(log.rest(0), reset) end
  elseif not exceeds and cost > 0 then
    write = function()
      local time = used > 0 and newest > now and newest + period - now or period
      if not (log.stays and newest <= now and used >= 32 and ended <= used) then
        return put(with(log.rest(ended), now, cost), time)
      end
      -- Most of a long log stays as it is: only what is new goes to disks and replicas.
      call('APPEND', key, many(now, cost))
      if ended - log.noted >= NEXT / 2 then call('SETRANGE', key, #quota, struct.pack('>I4', ended)) end
      call('PEXPIRE', key, math.ceil(time / 1000) + 1000)
    end
  end
  return exceeds, used, reset, retry, write, other, moves
end

