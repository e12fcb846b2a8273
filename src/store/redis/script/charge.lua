-- All or none. KEYS: the counters. ARGV: now, whether there are logs among them (empty: none), then for every ask its quota as values name it, and
-- its numbers: whole, each in seven bytes, by kind; see `charge.rs`. Replies with numbers of eight bytes: a bit for every ask that exceeds, now, a
-- bit for every ask that exceeds by what was used under another quota, and what is to be known of each, by kind; of those also how long to wait.
local sub, floor, ceil, format, numbers_of = string.sub, math.floor, math.ceil, string.format, struct.unpack

-- What was used under another quota, and whether that goes over to this one at once. It does not if this one is slower, until a charge passes: quotas
-- come and go, and what was used is not to be forgotten by it. The phase is the last number of all kinds.
local function carried(value, quota, numbers)
  local rule = quotas()
  local used = rule.usage(value, numbers_of('>I7', numbers, #numbers - 6))(now)
  return used, used > 0 and rule.is_faster(quota, value)
end

-- How long until what was used under another quota leaves room for what `fits` says.
local function wait(value, numbers, fits)
  return quotas().wait(value, numbers_of('>I7', numbers, #numbers - 6), now, fits)
end

local held
if ARGV[2] == '' then
  held = call('MGET', unpack(KEYS))
else
  held = {}
  for i = 1, #KEYS do
    held[i] = sub(ARGV[i * 2 + 1], 1, 1) ~= 's' and call('MGET', KEYS[i])[1]
  end
end
local denied, carries, bit = 0, 0, 1
local reply, last = { 0, now, 0 }, 3
-- By ask: what to write if all conform, and for how long; of a log, what writes it. Of those that exceed it is what the refusal has found out.
local value, ttl, writes, found = {}, {}, {}, nil

for i = 1, #KEYS do
  local quota, numbers, kept = ARGV[i * 2 + 1], ARGV[i * 2 + 2], held[i]
  local kind, length = sub(quota, 1, 1), #quota
  local foreign, moves, exceeds, healed, fits = false, false, false, false, nil
  if kept and sub(kept, 1, length) ~= quota then foreign = true end

  if kind == 'g' or kind == 't' or kind == 'l' or kind == 'q' then
    local ceiling, past, increment, more, place = numbers_of('>I7I7I7I7', numbers)
    local backlog = 0
    if foreign then
      local rule = quotas()
      local new = rule.parse(quota)
      local function backlog_of(used) return math.min(rule.time_of(new, used), new.owes and new.ceiling or new.capacity) end
      local used
      used, moves = carried(kept, quota, numbers)
      backlog = backlog_of(used)
      if past > 0 then
        fits = function(used) return backlog_of(used) < past end
      end
    elseif kept then
      backlog = (whole(sub(kept, length + 1)) or 0) - now
      if backlog < 0 then backlog = 0 end
    end
    if backlog > ceiling then backlog, healed = ceiling, true end
    last = last + 1
    reply[last] = backlog
    local filled, granted = backlog + increment, 0
    exceeds = backlog >= past
    if exceeds then filled = backlog end
    if more > 0 then
      local capacity, all, count, period = numbers_of('>I7I7I7I7', numbers, place)
      local free = capacity - filled
      if exceeds then
        free = 0
      elseif all <= free then
        granted, filled = more, filled + all
      elseif free > 0 then
        granted = muldiv(free, count, period)
        local time, left = muldiv(granted, period, count)
        filled = filled + time + (left and 1 or 0)
      end
      last = last + 1
      reply[last] = granted
    end
    if exceeds and (healed or moves) or not exceeds and denied == 0 and increment + granted > 0 then
      value[i] = quota .. format('%.0f', now + filled)
      ttl[i] = ceil(filled / 1000) + 1000
    end

  elseif kind == 'f' or kind == 'c' then
    local limit, period, cost, more, place = numbers_of('>I7I7I7I7', numbers)
    local number, ends, tail
    if kind == 'f' then
      local shifted = now + numbers_of('>I7', numbers, place)
      number = floor(shifted / period)
      ends = (number + 1) * period - (shifted - now)
    else
      -- The caller's window, or the one before or after it, by the server's clock.
      local begins, next_ends
      number, begins, ends, next_ends = numbers_of('>I7I7I7I7', numbers, place)
      if now >= ends then
        number, ends = number + 1, next_ends
      elseif now < begins then
        number, ends = number - 1, begins
      end
      tail = format('%.0f', ends)
      if ends <= now then ends = now + 1 end
    end
    local count = 0
    if foreign then
      count, moves = carried(kept, quota, numbers)
      count = math.min(count, sub(quota, -2) == '! ' and 4294967295 or limit)
      fits = cost <= limit and function(used) return used + cost <= limit end
    elseif kept then
      local stored, counted, stored_end = string.match(kept, '^(%d+):(%d+):?(%d*)$', length + 1)
      stored, counted = whole(stored), whole(counted)
      if stored and counted and counted <= 4294967295 and stored >= number then
        count = counted
        if stored == number + 1 then
          -- The clock went back a little.
          number, ends = stored, ends + period
          if tail then tail = stored_end end
        elseif stored > number then
          healed = true
        end
      end
    end
    reply[last + 1], reply[last + 2], reply[last + 3] = number, count, ends - now
    last = last + 3
    exceeds = cost > 0 and cost > limit - count
    if not exceeds then count = count + cost end
    local granted = 0
    if more > 0 then
      if not exceeds and limit > count then granted = math.min(more, limit - count) end
      count = count + granted
      last = last + 1
      reply[last] = granted
    end
    if exceeds and (healed or moves) or not exceeds and denied == 0 and cost + granted > 0 then
      value[i] = quota .. number .. ':' .. count .. (tail and ':' .. tail or '')
      ttl[i] = ceil((ends - now) / 1000) + 1000
    end

  elseif kind == 'w' then
    local limit, period, cost, more, offset = numbers_of('>I7I7I7I7I7', numbers)
    local shifted = now + offset
    local number = floor(shifted / period)
    local passed, current, previous = shifted - number * period, 0, 0
    if foreign then
      current, moves = carried(kept, quota, numbers)
      current = math.min(current, sub(quota, -2) == '! ' and 1048575 or limit)
      fits = cost <= limit and function(used) return used + cost <= limit end
    elseif kept then
      local stored, now_counted, then_counted = string.match(kept, '^(%d+):(%d+):(%d+)$', length + 1)
      stored, now_counted, then_counted = whole(stored), whole(now_counted), whole(then_counted)
      if stored and now_counted and now_counted <= 1048575 and then_counted then
        local gap = number - stored
        if gap == 1 then
          previous = math.min(now_counted, limit)
        elseif gap <= 0 then
          current, previous = now_counted, math.min(then_counted, limit)
          if gap == -1 then
            -- The clock went back a little. It stays as it is and is looked at from its beginning.
            number, passed = stored, passed - period
          elseif gap < -1 then
            healed = true
          end
        end
      end
    end
    reply[last + 1], reply[last + 2], reply[last + 3], reply[last + 4] = number, current, previous, passed
    last = last + 4
    local room = limit
    if previous > 0 then
      local weighted, left = muldiv(previous, passed > 0 and period - passed or period, period)
      room = room - weighted - (left and 1 or 0)
      if room < 0 then room = 0 end
    end
    room = room - current
    exceeds = cost > 0 and cost > room
    if not exceeds then current, room = current + cost, room - cost end
    local granted = 0
    if more > 0 then
      if not exceeds and room > 0 then granted = math.min(more, room) end
      current = current + granted
      last = last + 1
      reply[last] = granted
    end
    if exceeds and (healed or moves) or not exceeds and denied == 0 and cost + granted > 0 then
      value[i] = quota .. number .. ':' .. current .. ':' .. previous
      ttl[i] = ceil((2 * period - passed) / 1000) + 1000
    end

  else
    local other
    exceeds, reply[last + 1], reply[last + 2], reply[last + 3], writes[i], other, moves = log_charge(KEYS[i], quota, numbers, carried)
    last = last + 3
    if other then
      local limit, _, cost = numbers_of('>I7I7I7', numbers)
      kept, fits = other, cost <= limit and function(used) return used + cost <= limit end
    end
  end

  if exceeds then
    denied = denied + bit
    found = found or {}
    found[i] = true
    if fits and not moves then
      carries, last = carries + bit, last + 1
      reply[last] = wait(kept, numbers, fits)
    end
  end
  bit = bit + bit
end

for i = 1, #KEYS do
  -- Only if it is kept that the clock went back, or that the quota is faster, waiting as long as was said helps.
  if denied == 0 or found and found[i] then
    if value[i] then
      call('SET', KEYS[i], value[i], 'PX', ttl[i])
    elseif writes[i] then
      writes[i]()
    end
  end
end
reply[1], reply[3] = denied, carries
return struct.pack('>' .. string.rep('i8', last), unpack(reply))
