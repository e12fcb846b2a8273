-- All or none. KEYS: the counters. ARGV: now in microseconds (empty: the server's), the phases of all asks, then for every ask its quota as
-- values name it and numbers by kind; see `charge.rs`. Replies with a bit for every ask that exceeds, now, and numbers by kind.
local call, sub, floor, ceil, format = redis.call, string.sub, math.floor, math.ceil, string.format
local now = ARGV[1]
if now == '' then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now = now + 0
end

-- What was used under another quota.
local function carried(value, i)
  local phase = 0
  for text in string.gmatch(ARGV[2], '%d+') do
    i = i - 1
    if i == 0 then phase = text + 0 end
  end
  return quotas().used(value, phase, now)
end

local held = call('MGET', unpack(KEYS))
local denied, bit, at = 0, 1, 3
local reply, last = { 0, now }, 2
-- By ask: what to write if all conform, for how long, and cells to append instead. What a refusal found out is written all the same.
local value, ttl, append, found = {}, {}, {}, nil

for i = 1, #KEYS do
  local quota, kept = ARGV[at], held[i]
  local kind, length = sub(quota, 1, 1), #quota
  local foreign, exceeds, healed = false, false, false
  if kept and sub(kept, 1, length) ~= quota then foreign = true end

  if kind == 'g' or kind == 't' or kind == 'l' or kind == 'q' then
    local ceiling, room, increment, more = ARGV[at + 1] + 0, ARGV[at + 2] + 0, ARGV[at + 3] + 0, ARGV[at + 4]
    at = at + 5
    local backlog = 0
    if foreign then
      local used = carried(kept, i)
      if used > 0 then
        local rule = quotas()
        local new = rule.parse(quota)
        backlog = math.min(rule.time_of(new, used), new.owes and new.ceiling or new.capacity)
      else
        foreign = false
      end
    elseif kept then
      backlog = (whole(sub(kept, length + 1)) or 0) - now
      if backlog < 0 then backlog = 0 end
    end
    if backlog > ceiling then backlog, healed = ceiling, true end
    last = last + 1
    reply[last] = backlog
    local filled, granted = backlog + increment, 0
    exceeds = backlog > room
    if exceeds then filled = backlog end
    if more ~= '0' then
      local free, all = ARGV[at] - filled, ARGV[at + 1] + 0
      if exceeds then
        free = 0
      elseif all <= free then
        granted, filled = more + 0, filled + all
      elseif free > 0 then
        granted = muldiv(free, ARGV[at + 2] + 0, ARGV[at + 3] + 0)
        local time, left = muldiv(granted, ARGV[at + 3] + 0, ARGV[at + 2] + 0)
        filled = filled + time + (left and 1 or 0)
      end
      at = at + 4
      last = last + 1
      reply[last] = granted
    end
    if exceeds and (healed or foreign) or not exceeds and denied == 0 and increment + granted > 0 then
      value[i] = quota .. format('%.0f', now + filled)
      ttl[i] = ceil(filled / 1000) + 1000
    end

  elseif kind == 'f' or kind == 'c' then
    local limit, period, cost, more = ARGV[at + 1] + 0, ARGV[at + 2] + 0, ARGV[at + 3] + 0, ARGV[at + 4]
    local number, ends, tail
    if kind == 'f' then
      local shifted = now + ARGV[at + 5]
      number = floor(shifted / period)
      ends = (number + 1) * period - (shifted - now)
      at = at + 6
    else
      -- The caller's window, or the one before or after it, by the server's clock.
      number, ends, tail = ARGV[at + 5] + 0, ARGV[at + 7] + 0, ARGV[at + 7]
      if now >= ends then
        number, ends, tail = number + 1, ARGV[at + 8] + 0, ARGV[at + 8]
      elseif now < ARGV[at + 6] + 0 then
        number, ends, tail = number - 1, ARGV[at + 6] + 0, ARGV[at + 6]
      end
      if ends <= now then ends = now + 1 end
      at = at + 9
    end
    local count = 0
    if foreign then
      count = math.min(carried(kept, i), sub(quota, -2) == '! ' and 4294967295 or limit)
      foreign = count > 0
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
    if more ~= '0' then
      if not exceeds and limit > count then granted = math.min(more + 0, limit - count) end
      count = count + granted
      last = last + 1
      reply[last] = granted
    end
    if exceeds and (healed or foreign) or not exceeds and denied == 0 and cost + granted > 0 then
      value[i] = quota .. number .. ':' .. count .. (tail and ':' .. tail or '')
      ttl[i] = ceil((ends - now) / 1000) + 1000
    end

  elseif kind == 'w' then
    local limit, period, cost, more = ARGV[at + 1] + 0, ARGV[at + 2] + 0, ARGV[at + 3] + 0, ARGV[at + 4]
    local shifted = now + ARGV[at + 5]
    at = at + 6
    local number = floor(shifted / period)
    local passed, current, previous = shifted - number * period, 0, 0
    if foreign then
      current = math.min(carried(kept, i), sub(quota, -2) == '! ' and 1048575 or limit)
      foreign = current > 0
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
    if more ~= '0' then
      if not exceeds and room > 0 then granted = math.min(more + 0, room) end
      current = current + granted
      last = last + 1
      reply[last] = granted
    end
    if exceeds and (healed or foreign) or not exceeds and denied == 0 and cost + granted > 0 then
      value[i] = quota .. number .. ':' .. current .. ':' .. previous
      ttl[i] = ceil((2 * period - passed) / 1000) + 1000
    end

  else
    local limit, period, cost = ARGV[at + 1] + 0, ARGV[at + 2] + 0, ARGV[at + 3] + 0
    at = at + 4
    local place, before, many, with, heal = cells()
    local log = ''
    if foreign then
      log = many(now, math.min(carried(kept, i), limit))
      foreign = log ~= ''
    elseif kept and (#kept - length) % 7 == 0 then
      log = sub(kept, length + 1)
    end
    local count, ended = #log / 7, 0
    if count > 0 then
      -- What had ended when the newest was written has ended for good, even if the clock went back since.
      local newest = place(log, count)
      ended = before(log, math.max(newest, now) - period + 1)
      if newest >= now + period then
        log, count, ended, healed = heal(sub(log, ended * 7 + 1), now, period), count - ended, 0, true
      end
    end
    local used = count - ended
    local latest, retry = used > 0 and place(log, count) or 0, 0
    exceeds = cost > 0 and cost > limit - used
    if exceeds and cost <= limit then retry = place(log, ended + used + cost - limit) + period - now end
    reply[last + 1], reply[last + 2], reply[last + 3] = used, used > 0 and latest + period - now or 0, retry
    last = last + 3
    if denied == 0 and not exceeds and cost > 0 then
      ttl[i] = ceil((latest > now and latest + period - now or period) / 1000) + 1000
      if kept and not (foreign or healed) and latest <= now and used >= 32 and ended <= used then
        -- Most of a long log stays as it is: only what is new goes to disks and replicas.
        append[i] = many(now, cost)
      else
        value[i] = quota .. with(sub(log, ended * 7 + 1), now, cost)
      end
    elseif exceeds and (healed or foreign) then
      value[i], ttl[i] = quota .. log, ceil(reply[last - 1] / 1000) + 1000
    end
  end

  if exceeds then
    denied = denied + bit
    if value[i] then
      found = found or {}
      found[#found + 1] = i
    end
  end
  bit = bit + bit
end

if denied == 0 then
  for i = 1, #KEYS do
    if value[i] then
      call('SET', KEYS[i], value[i], 'PX', ttl[i])
    elseif append[i] then
      call('APPEND', KEYS[i], append[i])
      call('PEXPIRE', KEYS[i], ttl[i])
    end
  end
elseif found then
  -- Only if it is kept that the clock went back, or that the quota is another, waiting as long as was said helps.
  for _, i in ipairs(found) do
    call('SET', KEYS[i], value[i], 'PX', ttl[i])
  end
end
reply[1] = denied
return reply
