-- gcra: permits come back continuously, one by one. The translation of src/limit/gcra.rs, where the law is told; a
-- property test holds the two equal.
--
-- KEYS  of a bucket: one string, what was in use at a moment (see shared.lua): its format (1 byte, 1), the moment (6, ms),
--       permits (6), parts of a permit (5), and how many parts make a permit (5)
-- ARGV  rate, interval (ms), burst
--
-- Invariant: the string lives until its bucket is full, and a second longer; refusals keep it no longer than that.

local gcra = { keys = 1, args = 3 }

-- What the buckets of a limiter have in common.
function gcra.limiter(words)
  return { rate = tonumber(words[1]), interval = tonumber(words[2]), burst = tonumber(words[3]) }
end

-- A bucket with what is in use now.
function gcra.open(limiter, key, now)
  local bucket = fractions.open(limiter, key, now)
  bucket.burst = limiter.burst
  return bucket
end

-- Milliseconds until so many permits are there; only for more than there are.
local function wait_for(bucket, permits)
  return fractions.millis_for(bucket, bucket.used + permits - bucket.burst)
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

gcra.save, gcra.settle = fractions.save, fractions.settle

-- Takes back what has not returned since it was granted; nothing if the clock went back, when nobody knows.
function gcra.give_back(limiter, key, granted, at, now)
  local bucket = gcra.open(limiter, key, now)
  local permits, parts = fractions.returned(bucket, now - at)
  if at > now or permits >= granted or not bucket.at then return end
  fractions.lower(bucket, granted - permits, -parts)
  fractions.save(bucket)
end

algorithms.gcra = gcra
