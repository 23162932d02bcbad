-- gcra: permits become available again continuously, one by one. A translation of
-- crates/limit/src/algorithm/gcra/mod.rs, which documents the algorithm; a property test checks that both decide
-- equally.
--
-- KEYS  of a bucket: one string, fractions as in shared.lua
-- ARGV  rate, interval (ms), burst
-- Adds an algorithm, as documented in admit.lua
--
-- Invariant: the string expires one second after its bucket is full; refusals do not extend this.

local gcra = {
  keys = 1, args = 3, charge = fractions.charge, charge_unconditionally = fractions.charge_unconditionally,
  debt_wait = fractions.debt_wait,
  save = fractions.save, on_refusal = fractions.on_refusal,
}

-- Returns the data that all buckets of a limiter share.
function gcra.limiter(words, now)
  return { rate = tonumber(words[1]), interval = tonumber(words[2]), burst = tonumber(words[3]), now = now }
end

gcra.open = fractions.open

-- Returns the milliseconds until `permits` are free; only called for more permits than are free now.
local function wait_for(bucket, permits)
  return fractions.millis_for(bucket, bucket.used + permits - bucket.limiter.burst)
end

-- Returns the number of free permits.
local function left(bucket)
  return math.max(0, bucket.limiter.burst - bucket.used - (bucket.parts > 0 and 1 or 0))
end

-- Returns the remaining permits, and the time until there is one more.
function gcra.status(bucket)
  local remaining = left(bucket)
  return remaining, remaining < bucket.limiter.burst and wait_for(bucket, remaining + 1) or 0
end

-- Checks a request; writes nothing.
function gcra.check(bucket, permits)
  if permits <= left(bucket) then return true, 0 end
  return false, permits <= bucket.limiter.burst and wait_for(bucket, permits) or -1
end

-- Gives back the permits that have not returned since they were granted. If the clock went back, their number is
-- unknown: gives back nothing.
function gcra.give_back(limiter, key, granted, at, now)
  local bucket = fractions.open(limiter, key, now)
  local permits, parts = fractions.returned(limiter, now - at)
  if at > now or permits >= granted or not bucket.date then return end
  fractions.lower(bucket, granted - permits, -parts)
  fractions.save(bucket)
end

algorithms.gcra = gcra
