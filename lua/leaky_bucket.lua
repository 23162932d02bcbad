-- leaky_bucket: slots at an even distance, first come first served. The translation of src/limit/leaky_bucket.rs, where the
-- law is told; a property test holds the two equal. The arithmetic is that of gcra.lua, which stands before this file.
--
-- KEYS  level   a string as gcra.lua writes it: what was still to go on at a moment
-- ARGV  permits asked for, rate, interval (ms), queue (permits that may wait), longest wait (ms)
--
-- Invariant: a slot is given once. It lies where all that was in the bucket has leaked out, and only the last one given
-- can be given back.

local leaky_bucket = { keys = 1, args = 5 }

-- How many permits are in the bucket, a begun one included.
local function waiting(bucket)
  return bucket.used + (bucket.parts > 0 and 1 or 0)
end

-- How many requests of one permit would be given a slot now.
local function places(bucket)
  local places = math.max(0, bucket.queue + 1 - waiting(bucket))
  local permits, parts = returned(bucket, bucket.max_wait)
  if permits < bucket.used or (permits == bucket.used and parts < bucket.parts) then return 0 end
  local timely = permits - bucket.used - (parts < bucket.parts and 1 or 0) + 1
  return math.min(places, timely, 4294967295)
end

-- Milliseconds until one permit less is in the bucket.
local function next_leak(bucket)
  if bucket.parts > 0 then return millis_for(bucket, 0) end
  return bucket.used > 0 and millis_for(bucket, 1) or 0
end

local function open(key, arg, now)
  local bucket = read(key, arg, now)
  bucket.queue, bucket.max_wait = tonumber(ARGV[arg + 3]), tonumber(ARGV[arg + 4])
  return bucket
end

-- Judges one limit; writes nothing.
function leaky_bucket.check(key, arg, now)
  local bucket = open(key, arg, now)
  local delay = millis_for(bucket, bucket.used)
  local fits = waiting(bucket) <= bucket.queue and delay <= bucket.max_wait
  bucket.granted = bucket.permits <= bucket.rate and (bucket.permits == 0 or fits)
  bucket.remaining, bucket.reset, bucket.wait, bucket.delay = places(bucket), next_leak(bucket), 0, 0
  if bucket.granted then
    if bucket.permits > 0 then bucket.delay = delay end
  elseif bucket.permits > bucket.rate then
    bucket.wait = -1
  else
    local too_many = waiting(bucket) > bucket.queue and millis_for(bucket, bucket.used - bucket.queue) or 0
    bucket.wait = math.max(too_many, delay - bucket.max_wait)
  end
  return bucket
end

-- Takes the slot that check() granted; nothing is written for a request that only asks.
function leaky_bucket.charge(bucket)
  if bucket.permits == 0 then return end
  bucket.used = bucket.used + bucket.permits
  write(bucket)
  bucket.remaining, bucket.reset = places(bucket), next_leak(bucket)
end

leaky_bucket.settle = gcra.settle

-- Takes back the slot at a moment, if it is the last that was given: if what was there before it had leaked out by then.
function leaky_bucket.give_back(key, arg, at, now)
  local bucket = open(key, arg, now)
  if not bucket.at or bucket.permits == 0 then return end
  local last = open(key, arg, bucket.at)
  if last.used < bucket.permits then return end
  if bucket.at + millis_for(last, last.used - bucket.permits) ~= at then return end
  lower(last, bucket.permits, 0)
  lower(last, returned(last, now - bucket.at))
  last.now = now
  write(last)
end
