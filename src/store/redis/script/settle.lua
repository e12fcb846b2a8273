-- Corrects one counter, whether it fits or not. KEYS: the counter. ARGV: now, the quota it was charged
-- under as values name it, the numbers it had then in the same form, phase, mark (empty: none), cells (less than 0: they come back), and of
-- a calendar the window's number, start, end and the next one's end. Replies 1 if anything has changed.
local floor, ceil, format, max, min = math.floor, math.ceil, string.format, math.max, math.min
local rule = quotas()
local phase, mark, cost = ARGV[4] + 0, ARGV[5] ~= '' and ARGV[5] + 0 or nil, ARGV[6] + 0
if cost == 0 then return 0 end
local less = max(-cost, 0)
local held = call('MGET', KEYS[1])[1]
-- Under the quota that is in force now, which may be another than it was charged under.
local quota, state, text
if held then quota, state, text = rule.split(held) end
local charged_at = mark
if not quota then
  if cost <= 0 then return 0 end
  quota, text = rule.parse(ARGV[3]), ARGV[2]
elseif text == ARGV[2] then
  quota = rule.parse(ARGV[3])
else
  mark = nil
end

local function keep(value, time)
  if value == held then return 0 end
  call('SET', KEYS[1], value, 'PX', ceil(time / 1000) + 1000)
  return 1
end

if quota.time then
  local tat = whole(state) or 0
  -- Others may have been told to wait behind this place; then it lapses.
  if less > 0 and quota.delay > 0 and tat ~= charged_at then less = 0 end
  if less > 0 then
    local left = mark and max(mark - now, 0) or 9007199254740991
    tat = max(min(tat, now + quota.ceiling) - min(rule.time_of(quota, less), left), 0)
  elseif cost > 0 then
    local backlog = min(max(tat - now, 0), quota.ceiling)
    tat = now + min(backlog + rule.time_of(quota, cost), quota.ceiling)
  end
  return keep(text .. format('%.0f', tat), max(tat - now, 0))
end

if quota.kind == 'f' or quota.kind == 'c' then
  local stored, count, tail = rule.fields(state or '')
  local number, ends
  if quota.kind == 'f' then
    local passed
    number, passed = rule.place(quota, phase, now)
    ends, tail = now + quota.period - passed, nil
  elseif text == ARGV[2] and ARGV[7] then
    number, ends = ARGV[7] + 0, ARGV[9] + 0
    if now >= ends then
      number, ends = number + 1, ARGV[10] + 0
    elseif now < ARGV[8] + 0 then
      number, ends = number - 1, ARGV[8] + 0
    end
  else
    -- Another calendar's: known is only when the window ends.
    if not tail or now >= tail then return 0 end
    number, ends = stored, tail
  end
  ends = max(ends, now + 1)
  local window, counted = rule.fixed(number, stored, count)
  if window ~= number then
    ends = ends + quota.period
  elseif quota.kind == 'c' then
    tail = ends
  end
  if less > 0 then
    if mark and mark ~= window then return 0 end
    counted = max(counted - less, 0)
  else
    counted = min(counted + cost, 4294967295)
  end
  local value = text .. window .. ':' .. counted
  if quota.kind == 'c' then value = value .. ':' .. format('%.0f', tail or ends) end
  return keep(value, ends - now)
end

if quota.kind == 'w' then
  local number, passed = rule.place(quota, phase, now)
  local stored, counted, before = rule.fields(state or '')
  local window, current, previous, since = rule.sliding(quota, number, passed, stored, counted, before)
  if less > 0 then
    local gap = window - (mark or window)
    if gap == 0 then
      current = max(current - less, 0)
    elseif gap == 1 then
      previous = max(previous - less, 0)
    else
      return 0
    end
  else
    current = min(current + cost, 1048575)
  end
  return keep(text .. window .. ':' .. current .. ':' .. previous, 2 * quota.period - since)
end

local at, before, _, with, heal, read, written = cells()
local log = state and read(state) or ''
if log ~= '' then
  -- As in `log.lua`: what had ended when the newest was written has ended for good.
  log = string.sub(log, before(log, at(log, #log / 7) - quota.period + 1) * 7 + 1)
end
if less > 0 then
  local first, last = 0, 0
  if mark then
    first, last = before(log, mark), before(log, mark + 1)
    if first == last and mark + quota.period <= now then return 0 end
  end
  if first < last then
    log = string.sub(log, 1, first * 7) .. string.sub(log, min(first + less, last) * 7 + 1)
  else
    log = string.sub(log, 1, max(#log / 7 - less, 0) * 7)
  end
else
  log = string.sub(log, before(log, now - quota.period + 1) * 7 + 1)
  log = heal(log, now, quota.period)
  local count = min(cost, quota.count)
  log = with(string.sub(log, max(#log / 7 + count - quota.count, 0) * 7 + 1), now, count)
end
local latest = log == '' and now or at(log, #log / 7)
return keep(text .. written(log), max(min(latest, now + quota.period) + quota.period - now, 0))
