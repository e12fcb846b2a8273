-- What every script begins with. ARGV[1]: now in microseconds; empty for the server's own time, which is what decides outside of tests.
local call = redis.call
local now = ARGV[1]
if now == '' then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now = now + 0
end

-- Numbers are doubles: whole and exact below 2^53, which every time and count here is. Only products may not be.

-- floor(a * b / c), and whether something is left over. a, b < 2^53 and c <= 2^52. What is past 2^53 is only large.
local function muldiv(a, b, c)
  local product = a * b
  if product < 9007199254740992 then
    local quotient = math.floor(product / c)
    return quotient, quotient * c < product
  end
  local quotient, rest = 0, 0
  local whole, part = math.floor(b / c), b % c
  local bit = 4503599627370496
  while bit >= 1 do
    quotient, rest = quotient * 2, rest * 2
    if rest >= c then quotient, rest = quotient + 1, rest - c end
    if a >= bit then
      a, quotient, rest = a - bit, quotient + whole, rest + part
      if rest >= c then quotient, rest = quotient + 1, rest - c end
    end
    bit = bit / 2
  end
  return quotient, rest > 0
end

-- A number as it was written into a value; nothing if it is none that we write ("nan" and "0x1p9" are numbers to Lua).
local function whole(text)
  local number = tonumber(text)
  if number and number >= 0 and number < 9007199254740992 and number % 1 == 0 then return number end
end

