-- leaky_bucket: evenly spaced time slots, first come, first served. A translation of
-- crates/limit/src/algorithm/leaky_bucket.rs, which documents the algorithm; a property test checks that both decide
-- equally.
--
-- KEYS  of a bucket: one string, fractions as in shared.lua: the permits that have not leaked out yet
-- ARGV  rate, interval (ms), queue (permits that may wait), longest wait (ms)
-- Adds an algorithm, as documented in admit.lua
--
-- Invariant: each time slot is assigned once. It is the time when all earlier permits have leaked out of the bucket,
-- and only the slot that was assigned last can be given back.

local leaky_bucket = { keys = 1, args = 4, serial = true, open = fractions.open }

-- Returns the data that all buckets of a limiter share.
function leaky_bucket.limiter(words, now)
  return {
    rate = tonumber(words[1]), interval = tonumber(words[2]), queue = tonumber(words[3]), max_wait = tonumber(words[4]),
    now = now,
  }
end

-- Returns the number of permits in the bucket, rounded up.
local function waiting(bucket)
  return bucket.used + (bucket.parts > 0 and 1 or 0)
end

-- Returns the number of permits that can be charged now, together or one by one.
local function available(bucket)
  local limiter = bucket.limiter
  local permits, parts = fractions.returned(limiter, limiter.max_wait)
  local timely = permits - bucket.used - (parts < bucket.parts and 1 or 0) + 1
  return math.max(0, math.min(limiter.queue + 1 - waiting(bucket), timely, limiter.rate))
end

-- Returns the remaining permits, and the time until the bucket holds one permit less.
function leaky_bucket.status(bucket)
  local leaks = bucket.parts > 0 and 0 or math.min(bucket.used, 1)
  return available(bucket), fractions.millis_for(bucket, leaks)
end

-- Checks a request; writes nothing. Every request has its own time slot, so no two decisions are equal. A request that
-- finds the bucket empty does not wait, regardless of the queue; otherwise all permits in the bucket but one are
-- queued.
function leaky_bucket.check(bucket, permits)
  local limiter = bucket.limiter
  if permits == 0 then return true, 0, 0 end
  if permits > limiter.rate then return false, -1 end
  local room, delay = math.max(0, limiter.queue + 1 - permits), fractions.millis_for(bucket, bucket.used)
  local too_many = waiting(bucket) > room and fractions.millis_for(bucket, bucket.used - room) or 0
  local too_late = math.max(0, delay - limiter.max_wait)
  if too_many == 0 and too_late == 0 then return true, 0, delay end
  return false, math.max(too_many, too_late)
end

leaky_bucket.charge, leaky_bucket.charge_unconditionally = fractions.charge, fractions.charge_unconditionally
leaky_bucket.save, leaky_bucket.on_refusal = fractions.save, fractions.on_refusal

-- Gives back the time slot `at`, if it was assigned last: that is, if all earlier permits had leaked out at that time.
function leaky_bucket.give_back(limiter, key, permits, at, now)
  local last = fractions.open(limiter, key, 0)
  if not last.date or last.used < permits then return end
  if last.date + fractions.millis_for(last, last.used - permits) ~= at then return end
  fractions.lower(last, permits, 0)
  fractions.lower(last, fractions.returned(limiter, now - last.date))
  fractions.save(last)
end

algorithms.leaky_bucket = leaky_bucket
