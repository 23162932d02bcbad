-- sliding_window: the window is the current segment and those that ended within the interval before now. The translation
-- of src/limit/sliding_window.rs, where the law is told; a property test holds the two equal.
--
-- KEYS  of a bucket: one string, a log as shared.lua has it, each entry dated when its segment ends
-- ARGV  rate, interval (ms), segments
--
-- Invariant: a permit returns one interval after its segment has ended, so that any interval holds at most `rate`. After
-- a grant there are at most `segments + 1` entries, and the key outlives the last of them by an interval. An entry that
-- lies ahead of the current segment (the clock went back, or segments were longer once) joins it with the next write.

local sliding_window = { keys = 1, args = 3 }

-- What the buckets of a limiter have in common.
function sliding_window.limiter(words)
  local interval, segments = tonumber(words[2]), tonumber(words[3])
  return { rate = tonumber(words[1]), interval = interval, length = math.ceil(interval / segments) }
end

-- When the segment ends that a moment is in.
local function segment_end(limiter, at)
  return (math.floor(at / limiter.length) + 1) * limiter.length
end

-- A bucket as it is stored.
function sliding_window.open(limiter, key, now)
  local bucket = log.open(key, now, limiter)
  bucket.present, bucket.expired = segment_end(limiter, now), math.max(0, now - limiter.interval)
  log.read(bucket, bucket.expired)
  return bucket
end

-- Milliseconds until a segment returns; one that lies ahead of the present one counts as this.
local function returns_in(bucket, ends)
  return math.min(ends or bucket.present, bucket.present) + bucket.limiter.interval - bucket.now
end

-- What is left, and when there will be more.
function sliding_window.tell(bucket)
  local remaining = math.max(0, bucket.limiter.rate - bucket.used)
  return remaining, bucket.used > 0 and returns_in(bucket, bucket.oldest) or 0
end

-- Judges a request; writes nothing.
function sliding_window.check(bucket, permits)
  local rate = bucket.limiter.rate
  local over = bucket.used + permits - rate
  if over <= 0 or permits == 0 then return true, 0 end
  return false, permits <= rate and returns_in(bucket, log.date_of(bucket, over)) or -1
end

-- Takes permits that check() granted.
function sliding_window.charge(bucket, permits)
  if permits == 0 then return end
  bucket.last = 0
  log.charge(bucket, permits, bucket.expired, bucket.present, bucket.present - 1)
end

-- Writes what was charged in this call.
function sliding_window.save(bucket)
  log.write(bucket, bucket.present, text(bucket.present - bucket.now + 2 * bucket.limiter.interval))
end

-- After a refusal: writes nothing, unless segments lie ahead of the present one.
function sliding_window.settle(bucket)
  if not bucket.date or bucket.date <= bucket.present then return end
  log.begin(bucket, bucket.expired, bucket.present, bucket.present - 1)
  sliding_window.save(bucket)
end

-- Takes permits out of their segment, as if they had never been granted.
function sliding_window.give_back(limiter, key, permits, at, now)
  local bucket, ends = log.open(key, now, limiter), segment_end(limiter, at)
  log.read(bucket, -1)
  log.take_out(bucket, permits, ends, ends)
end

algorithms.sliding_window = sliding_window
