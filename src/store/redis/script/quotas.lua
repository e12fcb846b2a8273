-- Quotas as values name them, for what is rare: a value that was written under another quota, and corrections.
-- KIND COUNT / PERIOD [* BURST] [+ DELAY] [@ CALENDAR] [!]
local function quotas()
  local CENTURY = 3162240000000000
  local TIME = { g = true, t = true, l = true, q = true }

  -- The numbers behind a text, as `Numbers` in Rust has them; nothing if it is none of ours.
  local function parse(text)
    local kind, count, period, rest = string.match(text, '^([gtlqfcws])([%de]+)/([%de]+)(%S*) $')
    count, period = whole(count), whole(period)
    if not (count and period and count > 0 and period > 0) then return end
    local quota = { kind = kind, count = count, period = period, owes = string.sub(rest, -1) == '!' }
    if not TIME[kind] then return quota end
    quota.time = true
    quota.delay = whole(string.match(rest, '%+([%de]+)')) or 0
    local burst = whole(string.match(rest, '^%*([%de]+)')) or count
    local full, left = muldiv(burst, period, count)
    local interval = math.floor(period / count)
    quota.slack = period % count == 0 and 0 or math.min(burst - 1, math.max(interval - 1, 0))
    quota.capacity = full + (left and 1 or 0) + quota.slack
    quota.ceiling = quota.owes and CENTURY or quota.capacity + quota.delay
    return quota
  end

  -- How long that many cells take to drain, rounded up; a century at most.
  local function time_of(quota, count)
    local time, left = muldiv(count, quota.period, quota.count)
    return math.min(time + (left and 1 or 0), CENTURY)
  end

  -- The quota and the state in a value.
  local function split(value)
    local text = string.match(value, '^%S+ ')
    local quota = text and parse(text)
    if quota then return quota, string.sub(value, #text + 1), text end
  end

  -- Numbers with colons between them.
  local function fields(state)
    local a, b, c = string.match(state, '^(%d+):(%d+):?(%d*)$')
    return whole(a), whole(b), whole(c)
  end

  -- Where now lies in the sequence of windows: the number, and how much has passed.
  local function place(quota, phase, now)
    local shifted = now + phase % quota.period
    local number = math.floor(shifted / quota.period)
    return number, shifted - number * quota.period
  end

  -- A fixed window's count: of the stored window if it is the current one or the next, of none if it is past. One that is further ahead
  -- keeps its count in the current window.
  local function fixed(number, stored, count)
    if not (stored and count) or stored < number then return number, 0 end
    if stored > number + 1 then return number, count end
    return stored, count
  end

  -- A sliding window's counts as they stand now: number, current, previous, and how much has passed (less than 0: it is ahead).
  local function sliding(quota, number, passed, stored, current, previous)
    if not (stored and current and previous) then return number, 0, 0, passed end
    previous = math.min(previous, quota.count)
    local gap = number - stored
    if gap == 1 then return number, 0, math.min(current, quota.count), passed end
    if gap > 1 then return number, 0, 0, passed end
    if gap == -1 then return stored, current, previous, passed - quota.period end
    return number, current, previous, passed
  end

  -- Cells in use under the quota that a value was written under, rounded up: a function of time.
  local function usage(value, phase)
    local quota, state = split(value)
    if not quota then return function() return 0 end end
    if quota.time then
      local tat = whole(state) or 0
      return function(now)
        local backlog = math.min(tat - now, quota.ceiling)
        if backlog <= 0 then return 0 end
        return muldiv(math.max(backlog - quota.slack - 1, 0), quota.count, quota.period) + 1
      end
    end
    if quota.kind == 's' then
      local at, before, _, _, _, read = cells()
      local log = read(state)
      local count = #log / 7
      return function(now)
        return count == 0 and 0 or count - before(log, math.max(at(log, count), now) - quota.period + 1)
      end
    end
    local a, b, c = fields(state)
    if quota.kind == 'c' then
      return function(now) return c and now < c and b or 0 end
    end
    return function(now)
      local number, passed = place(quota, phase, now)
      if quota.kind == 'f' then
        local _, count = fixed(number, a, b)
        return count
      end
      local _, current, previous, since = sliding(quota, number, passed, a, b, c)
      local weighted, left = muldiv(previous, quota.period - math.max(since, 0), quota.period)
      return current + weighted + (left and 1 or 0)
    end
  end

  -- Whether a quota lets more pass in the long run than the one that a value was written under.
  local function is_faster(quota, value)
    local new, old = parse(quota), split(value)
    return old ~= nil and new.count * old.period > old.count * new.period
  end

  -- How long until so many cells have come free under the quota they were taken under that the rest fits: as `limit::until` searches in Rust.
  local function wait(value, phase, now, fits)
    local used, low, high = usage(value, phase), 0, 1
    while high < 4503599627370496 and not fits(used(now + high)) do
      low, high = high, high * 2
    end
    while high - low > 1 do
      local middle = math.floor((low + high) / 2)
      if fits(used(now + middle)) then high = middle else low = middle end
    end
    return high
  end

  return {
    parse = parse, time_of = time_of, split = split, fields = fields, place = place, fixed = fixed, sliding = sliding,
    usage = usage, is_faster = is_faster, wait = wait,
  }
end

