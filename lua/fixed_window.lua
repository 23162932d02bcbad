-- fixed_window: at most `rate` permits from one boundary of a calendar to the next. The translation of
-- src/limit/fixed_window.rs, where the law is told; a property test holds the two equal.
--
-- KEYS  of a bucket: one string, a log as shared.lua has it, each entry dated when its window ends
-- ARGV  rate, and five boundaries (ms): those around the window of the caller's present (give_back: of the moment of the
--       grant), two before it and one after it. They choose nothing but what is known here.
-- open() returns a bucket that is `unknown` if `now` is in no window that was sent.
--
-- Invariant: `now` alone says which window counts. The key lives until its window has ended, and as long again, at most
-- an hour, for a clock that is set back over the boundary.

local fixed_window = { keys = 1, args = 6 }

local HOUR = 60 * 60 * 1000

-- What the buckets of a limiter have in common.
function fixed_window.limiter(words)
  local limiter = { rate = tonumber(words[1]) }
  for i = 1, 5 do limiter[i] = tonumber(words[i + 1]) end
  return limiter
end

-- The window that a moment is in, and the start of the one before it; nil if it was not sent.
local function window_of(limiter, at)
  for i = 1, 3 do
    local start, ends = limiter[i + 1], limiter[i + 2]
    if start <= at and at < ends then return limiter[i], start, ends end
  end
end

-- A bucket as it is stored.
function fixed_window.open(limiter, key, now)
  local previous, start, ends = window_of(limiter, now)
  if not ends then return { unknown = true } end
  local bucket = log.open(key, now, limiter)
  bucket.forget, bucket.present, bucket.length = previous, ends, ends - start
  log.read(bucket, start)
  return bucket
end

-- What is left, and when there will be more.
function fixed_window.tell(bucket)
  return math.max(0, bucket.limiter.rate - bucket.used), bucket.used > 0 and bucket.present - bucket.now or 0
end

-- Judges a request; writes nothing.
function fixed_window.check(bucket, permits)
  local rate = bucket.limiter.rate
  if permits == 0 or bucket.used + permits <= rate then return true, 0 end
  return false, permits <= rate and bucket.present - bucket.now or -1
end

-- Takes permits that check() granted.
function fixed_window.charge(bucket, permits)
  if permits == 0 then return end
  bucket.last = 0
  log.charge(bucket, permits, bucket.forget, bucket.present, bucket.present - 1)
end

-- Writes what was charged in this call.
function fixed_window.save(bucket)
  log.write(bucket, bucket.present, text(bucket.present - bucket.now + math.min(bucket.length, HOUR)))
end

-- After a refusal: writes nothing, unless windows end after the present one.
function fixed_window.settle(bucket)
  if not bucket.date or bucket.date <= bucket.present then return end
  log.begin(bucket, bucket.forget, bucket.present, bucket.present - 1)
  fixed_window.save(bucket)
end

-- Takes permits out of their window, as if they had never been granted.
function fixed_window.give_back(limiter, key, permits, at)
  local bucket, _, _, ends = log.open(key, at, limiter), window_of(limiter, at)
  if not ends then return end
  log.read(bucket, -1)
  log.take_out(bucket, permits, ends, ends)
end

algorithms.fixed_window = fixed_window
