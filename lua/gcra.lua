-- gcra: permits come back continuously, one by one. The translation of src/limit/gcra.rs, where the law is told; a
-- property test holds the two equal.
--
-- KEYS  of a bucket: used    a string, "AT PERMITS PARTS/INTERVAL": what was in use at a moment (ms), so many permits and
--                          so many parts of which INTERVAL make a permit
-- ARGV  rate, interval (ms), burst
--
-- Invariant: every number is a whole one below 2^53, which a double holds exactly: no rate is ever multiplied with an
-- interval. The string lives until its bucket is full, and a second longer; refusals keep it no longer than that.

local gcra = { shared_keys = 0, keys = 1, args = 3 }

-- The longest wait that is told: a thousand years.
local MAX_WAIT = 1000 * 366 * 24 * 60 * 60 * 1000

-- How much longer than until it is full a bucket is kept, in milliseconds.
local MARGIN = 1000

-- floor(a * b / divisor), and the remainder, for a < 2^48 and b and divisor < 2^36: the product is never made, but
-- divided digit by digit of 16 bits, so that nothing on the way reaches 2^53. A quotient that does is not exact.
local function multiply_divide(a, b, divisor)
  local quotient, rest = 0, 0
  for _, unit in ipairs({ 4294967296, 65536, 1 }) do
    local digit = math.floor(a / unit) % 65536
    local part = rest * 65536 + digit * b
    quotient = quotient * 65536 + math.floor(part / divisor)
    rest = part % divisor
  end
  return quotient, rest
end

-- Takes permits and parts out of what is in use; what is not in use cannot be taken.
local function lower(bucket, permits, parts)
  local left = bucket.parts - parts
  bucket.parts = left % bucket.interval
  bucket.used = bucket.used - permits + math.floor(left / bucket.interval)
  if bucket.used < 0 then bucket.used, bucket.parts = 0, 0 end
end

-- The permits and parts that return in so many milliseconds.
local function returned(bucket, millis)
  return multiply_divide(math.min(math.max(0, millis), 2 ^ 48 - 1), bucket.rate, bucket.interval)
end

-- Milliseconds until so many permits and the parts in use have returned.
local function millis_for(bucket, permits)
  local millis, rest = multiply_divide(permits, bucket.interval, bucket.rate)
  return math.min(millis + math.ceil((rest + bucket.parts) / bucket.rate), MAX_WAIT)
end

-- Milliseconds until so many permits are there; only for more than there are.
local function wait_for(bucket, permits)
  return millis_for(bucket, bucket.used + permits - bucket.burst)
end

-- What the buckets of a limiter have in common.
function gcra.limiter(_, words, at)
  return { rate = tonumber(words[at]), interval = tonumber(words[at + 1]), burst = tonumber(words[at + 2]) }
end

-- A bucket with what is in use now; a text that is not ours is no bucket.
function gcra.open(limiter, key, now)
  local bucket = {
    key = KEYS[key], now = now, used = 0, parts = 0, rate = limiter.rate, interval = limiter.interval, burst = limiter.burst,
  }
  local at, used, parts, interval = string.match(redis.call('GET', bucket.key) or '', '^(%d+) (%d+) (%d+)/(%d+)$')
  if not at then return bucket end
  local whole, rest = multiply_divide(tonumber(parts), bucket.interval, tonumber(interval))
  bucket.at, bucket.used, bucket.parts = tonumber(at), tonumber(used), whole + (rest > 0 and 1 or 0)
  lower(bucket, returned(bucket, now - bucket.at))
  return bucket
end

-- Milliseconds for which the bucket must be known.
local function keep(bucket)
  return millis_for(bucket, bucket.used) + MARGIN
end

local function write(bucket)
  local value = string.format('%.0f %.0f %.0f/%.0f', bucket.now, bucket.used, bucket.parts, bucket.interval)
  redis.call('SET', bucket.key, value, 'PX', keep(bucket))
end

-- What is left, and when there will be one more.
function gcra.tell(bucket)
  local started = bucket.parts > 0 and 1 or 0
  local remaining = math.max(0, bucket.burst - bucket.used - started)
  return remaining, remaining < bucket.burst and wait_for(bucket, remaining + 1) or 0
end

-- Judges a request; writes nothing.
function gcra.check(bucket, permits)
  if permits <= gcra.tell(bucket) then return true, 0 end
  return false, permits <= bucket.burst and wait_for(bucket, permits) or -1
end

-- Takes permits that check() granted.
function gcra.charge(bucket, permits)
  if permits == 0 then return end
  bucket.used, bucket.added = bucket.used + permits, true
end

-- Writes what was charged in this call.
gcra.save = write

-- After a refusal: nothing is written, unless the clock went back. A rule that has become slower keeps the bucket until
-- it is full by that rule.
function gcra.settle(bucket)
  if not bucket.at then return end
  if bucket.at > bucket.now then return write(bucket) end
  if redis.call('PTTL', bucket.key) < keep(bucket) - MARGIN then redis.call('PEXPIRE', bucket.key, keep(bucket)) end
end

-- Takes back what has not returned since it was granted; nothing if the clock went back, when nobody knows.
function gcra.give_back(limiter, key, granted, at, now)
  local bucket = gcra.open(limiter, key, now)
  local permits, parts = returned(bucket, now - at)
  if at > now or permits >= granted or not bucket.at then return end
  lower(bucket, granted - permits, -parts)
  write(bucket)
end
