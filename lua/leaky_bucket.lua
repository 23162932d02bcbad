-- leaky_bucket: slots at an even distance, first come first served. The translation of src/limit/leaky_bucket.rs, where the
-- law is told; a property test holds the two equal.
--
-- KEYS  of a bucket: one string, fractions as shared.lua has them: what is still to go on
-- ARGV  rate, interval (ms), queue (permits that may wait), longest wait (ms)
-- Returns what admit.lua says of an algorithm
--
-- Invariant: a slot is given once. It lies where all that was in the bucket has leaked out, and only the last one given
-- can be given back.

local leaky_bucket = { keys = 1, args = 4, one_by_one = true, open = fractions.open }

-- What all buckets of a limiter share.
function leaky_bucket.limiter(words, now)
  return {
    rate = tonumber(words[1]), interval = tonumber(words[2]), queue = tonumber(words[3]), max_wait = tonumber(words[4]),
    now = now,
  }
end

-- How many permits are in the bucket, rounded up.
local function waiting(bucket)
  return bucket.used + (bucket.parts > 0 and 1 or 0)
end

-- How many permits can be spent now, together or one by one.
local function places(bucket)
  local limiter = bucket.limiter
  local permits, parts = fractions.returned(limiter, limiter.max_wait)
  local timely = permits - bucket.used - (parts < bucket.parts and 1 or 0) + 1
  return math.max(0, math.min(limiter.queue + 1 - waiting(bucket), timely, limiter.rate))
end

-- What is left, and when one permit less is in the bucket.
function leaky_bucket.tell(bucket)
  local leaks = bucket.parts > 0 and 0 or math.min(bucket.used, 1)
  return places(bucket), fractions.millis_for(bucket, leaks)
end

-- Checks a request; writes nothing. Every request has a slot of its own, so that no two are answered alike. One that finds
-- the bucket empty does not wait, whatever the queue; else its permits are in the queue with all others but one.
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

leaky_bucket.charge, leaky_bucket.save, leaky_bucket.settle = fractions.charge, fractions.save, fractions.settle

-- Takes back the slot at a moment, if it is the last that was given: if what was there before it had leaked out by then.
function leaky_bucket.give_back(limiter, key, permits, at, now)
  local last = fractions.open(limiter, key, 0)
  if not last.date or last.used < permits then return end
  if last.date + fractions.millis_for(last, last.used - permits) ~= at then return end
  fractions.lower(last, permits, 0)
  fractions.lower(last, fractions.returned(limiter, now - last.date))
  fractions.save(last)
end

algorithms.leaky_bucket = leaky_bucket
