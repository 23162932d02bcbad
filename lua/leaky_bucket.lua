-- leaky_bucket: slots at an even distance, first come first served. The translation of src/limit/leaky_bucket.rs, where the
-- law is told; a property test holds the two equal.
--
-- KEYS  of a bucket: one string, what was still to go on at a moment, as gcra.lua has it
-- ARGV  rate, interval (ms), queue (permits that may wait), longest wait (ms)
--
-- Invariant: a slot is given once. It lies where all that was in the bucket has leaked out, and only the last one given
-- can be given back.

local leaky_bucket = { keys = 1, args = 4, one_by_one = true }

-- What the buckets of a limiter have in common.
function leaky_bucket.limiter(words)
  return {
    rate = tonumber(words[1]), interval = tonumber(words[2]), queue = tonumber(words[3]), max_wait = tonumber(words[4]),
  }
end

-- A bucket with what is in it now.
function leaky_bucket.open(limiter, key, now)
  local bucket = fractions.open(limiter, key, now)
  bucket.queue, bucket.max_wait = limiter.queue, limiter.max_wait
  return bucket
end

-- How many permits are in the bucket, a begun one included.
local function waiting(bucket)
  return bucket.used + (bucket.parts > 0 and 1 or 0)
end

-- How many requests of one permit would be given a slot now.
local function places(bucket)
  local places = math.max(0, bucket.queue + 1 - waiting(bucket))
  local permits, parts = fractions.returned(bucket, bucket.max_wait)
  if permits < bucket.used or (permits == bucket.used and parts < bucket.parts) then return 0 end
  local timely = permits - bucket.used - (parts < bucket.parts and 1 or 0) + 1
  return math.min(places, timely, 4294967295)
end

-- Milliseconds until one permit less is in the bucket.
local function next_leak(bucket)
  if bucket.parts > 0 then return fractions.millis_for(bucket, 0) end
  return bucket.used > 0 and fractions.millis_for(bucket, 1) or 0
end

-- What is left, and when there will be one more.
function leaky_bucket.tell(bucket)
  return places(bucket), next_leak(bucket)
end

-- Judges a request; writes nothing. Every request has a slot of its own, so that no two are answered alike.
function leaky_bucket.check(bucket, permits)
  if permits == 0 then return true, 0, 0 end
  if permits > bucket.rate then return false, -1 end
  local delay, in_line = fractions.millis_for(bucket, bucket.used), waiting(bucket)
  if in_line <= bucket.queue and delay <= bucket.max_wait then return true, 0, delay end
  local too_many = in_line > bucket.queue and fractions.millis_for(bucket, bucket.used - bucket.queue) or 0
  return false, math.max(too_many, delay - bucket.max_wait)
end

-- Takes the slot that check() granted.
function leaky_bucket.charge(bucket, permits)
  if permits == 0 then return end
  bucket.used, bucket.added = bucket.used + permits, true
end

leaky_bucket.save, leaky_bucket.settle = fractions.save, fractions.settle

-- Takes back the slot at a moment, if it is the last that was given: if what was there before it had leaked out by then.
function leaky_bucket.give_back(limiter, key, permits, at, now)
  local bucket = leaky_bucket.open(limiter, key, now)
  if not bucket.at or permits == 0 then return end
  local last = leaky_bucket.open(limiter, key, bucket.at)
  if last.used < permits then return end
  if bucket.at + fractions.millis_for(last, last.used - permits) ~= at then return end
  fractions.lower(last, permits, 0)
  fractions.lower(last, fractions.returned(last, now - bucket.at))
  last.now = now
  fractions.save(last)
end

algorithms.leaky_bucket = leaky_bucket
