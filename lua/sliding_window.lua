-- sliding_window: the window is the current segment and those that ended within the interval before now. The translation
-- of src/limit/sliding_window.rs, where the law is told; a property test holds the two equal.
--
-- KEYS  segments  the counters of the segments (see counters.lua)
-- ARGV  permits asked for, rate, interval (ms), segments
-- check() returns a bucket, as algorithms.lua says.
--
-- Invariant: a permit returns one interval after its segment has ended, so that any interval holds at most `rate`. After
-- a grant there are at most `segments + 1` counters, and the key outlives the last of them by an interval.

local sliding_window = { keys = 1, args = 4 }

-- When the segment ends that a moment is in.
local function segment_end(arg, at)
  local length = math.ceil(tonumber(ARGV[arg + 2]) / tonumber(ARGV[arg + 3]))
  return (math.floor(at / length) + 1) * length
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

-- Judges one limit; writes nothing.
function sliding_window.check(key, arg, now)
  local interval = tonumber(ARGV[arg + 2])
  local bucket = {
    key = KEYS[key], now = now, permits = tonumber(ARGV[arg]), rate = tonumber(ARGV[arg + 1]), interval = interval,
    horizon = math.max(0, now - interval), forget = math.max(0, now - interval), present = segment_end(arg, now),
    counters = counters.read(KEYS[key]),
  }
  counters.judge(bucket)
  bucket.wait = 0
  if not bucket.granted then
    bucket.wait = -1
    if bucket.permits <= bucket.rate then bucket.wait = wait_for(bucket, bucket.used + bucket.permits - bucket.rate) end
  end
  bucket.reset = bucket.oldest and returns_in(bucket, bucket.oldest) or 0
  return bucket
end

-- Takes what check() granted; nothing is written for a request that only asks.
function sliding_window.charge(bucket)
  if bucket.permits == 0 then return end
  counters.charge(bucket, bucket.present - bucket.now + 2 * bucket.interval)
  bucket.reset = returns_in(bucket, bucket.oldest)
end

-- After a refusal: nothing is written, unless segments lie ahead of the present one.
function sliding_window.settle(bucket)
  counters.settle(bucket)
end

-- Takes permits out of their segment, as if they had never been granted.
function sliding_window.give_back(key, arg, at)
  counters.remove(KEYS[key], tonumber(ARGV[arg]), segment_end(arg, at))
end
