-- sliding_window: the window is the current segment and those that ended within the interval before now. The translation
-- of src/limit/sliding_window.rs, where the law is told; a property test holds the two equal.
--
-- KEYS  of a bucket: segments  the counters of the segments (see counters.lua)
-- ARGV  rate, interval (ms), segments
--
-- Invariant: a permit returns one interval after its segment has ended, so that any interval holds at most `rate`. After
-- a grant there are at most `segments + 1` counters, and the key outlives the last of them by an interval.

local sliding_window = { shared_keys = 0, keys = 1, args = 3 }

-- When the segment ends that a moment is in.
local function segment_end(limiter, at)
  return (math.floor(at / limiter.length) + 1) * limiter.length
end

-- Milliseconds until a segment returns; one that lies ahead of the present one counts as this.
local function returns_in(bucket, ends)
  return math.min(ends, bucket.present) + bucket.interval - bucket.now
end

-- Milliseconds until so many permits have returned, counted from the oldest segment of the window on.
local function wait_for(bucket, missing)
  for _, ends in ipairs(counters.in_order(bucket)) do
    missing = missing - bucket.counters[ends]
    if missing <= 0 then return returns_in(bucket, ends) end
  end
  return bucket.interval
end

-- What the buckets of a limiter have in common.
function sliding_window.limiter(_, words, at)
  local interval, segments = tonumber(words[at + 1]), tonumber(words[at + 2])
  return { rate = tonumber(words[at]), interval = interval, length = math.ceil(interval / segments) }
end

-- A bucket as it is stored.
function sliding_window.open(limiter, key, now)
  local horizon = math.max(0, now - limiter.interval)
  local bucket = {
    key = KEYS[key], now = now, rate = limiter.rate, interval = limiter.interval, horizon = horizon, forget = horizon,
    present = segment_end(limiter, now), counters = counters.read(KEYS[key]),
  }
  counters.take_stock(bucket)
  return bucket
end

-- What is left, and when there will be more.
function sliding_window.tell(bucket)
  return counters.remaining(bucket), bucket.oldest and returns_in(bucket, bucket.oldest) or 0
end

-- Judges a request; writes nothing.
function sliding_window.check(bucket, permits)
  if permits == 0 or permits <= counters.remaining(bucket) then return true, 0 end
  return false, permits <= bucket.rate and wait_for(bucket, bucket.used + permits - bucket.rate) or -1
end

-- Takes permits that check() granted.
function sliding_window.charge(bucket, permits)
  if permits > 0 then counters.charge(bucket, permits) end
end

-- Writes what was charged in this call.
function sliding_window.save(bucket)
  counters.save(bucket, bucket.present - bucket.now + 2 * bucket.interval)
end

-- After a refusal: nothing is written, unless segments lie ahead of the present one.
function sliding_window.settle(bucket)
  counters.settle(bucket)
end

-- Takes permits out of their segment, as if they had never been granted.
function sliding_window.give_back(limiter, key, permits, at)
  counters.remove(KEYS[key], permits, segment_end(limiter, at))
end
