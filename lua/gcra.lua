-- gcra: permits come back continuously, one by one. The translation of src/limit/gcra.rs, where the law is told; a
-- property test holds the two equal.
--
-- KEYS  of a bucket: one string, fractions as shared.lua has them
-- ARGV  rate, interval (ms), burst
-- Returns what admit.lua says of an algorithm
--
-- Invariant: the string lives until its bucket is full, and a second longer; refusals keep it no longer than that.

local gcra = { keys = 1, args = 3, charge = fractions.charge, save = fractions.save, settle = fractions.settle }

-- What all buckets of a limiter share.
function gcra.limiter(words, now)
  return { rate = tonumber(words[1]), interval = tonumber(words[2]), burst = tonumber(words[3]), now = now }
end

gcra.open = fractions.open

-- Milliseconds until so many permits are free; only called for more than are free now.
local function wait_for(bucket, permits)
  return fractions.millis_for(bucket, bucket.used + permits - bucket.limiter.burst)
end

-- How many permits are free.
local function left(bucket)
  return math.max(0, bucket.limiter.burst - bucket.used - (bucket.parts > 0 and 1 or 0))
end

-- What is left, and when there will be one more.
function gcra.tell(bucket)
  local remaining = left(bucket)
  return remaining, remaining < bucket.limiter.burst and wait_for(bucket, remaining + 1) or 0
end

-- Checks a request; writes nothing.
function gcra.check(bucket, permits)
  if permits <= left(bucket) then return true, 0 end
  return false, permits <= bucket.limiter.burst and wait_for(bucket, permits) or -1
end

-- Takes back what has not returned since it was granted. If the clock went back, that is unknown: takes back nothing.
function gcra.give_back(limiter, key, granted, at, now)
  local bucket = fractions.open(limiter, key, now)
  local permits, parts = fractions.returned(limiter, now - at)
  if at > now or permits >= granted or not bucket.date then return end
  fractions.lower(bucket, granted - permits, -parts)
  fractions.save(bucket)
end

algorithms.gcra = gcra
