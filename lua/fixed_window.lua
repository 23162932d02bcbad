-- fixed_window: at most `rate` permits from one boundary of a calendar to the next. The translation of
-- src/limit/fixed_window.rs, where the law is told; a property test holds the two equal.
--
-- KEYS  of a bucket: window  the counters of the present window and of the one before it (see counters.lua)
-- ARGV  rate, and five boundaries (ms): those around the window of the caller's present (give_back: of the moment of the
--       grant), two before it and one after it. They choose nothing but what is known here.
-- open() returns a bucket that is `unknown` if `now` is in no window that was sent.
--
-- Invariant: `now` alone says which window counts. The key lives until its window has ended, and as long again, at most
-- an hour, for a clock that is set back over the boundary.

local fixed_window = { shared_keys = 0, keys = 1, args = 6 }

local HOUR = 60 * 60 * 1000

-- What the buckets of a limiter have in common.
function fixed_window.limiter(_, words, at)
  local limiter = { rate = tonumber(words[at]) }
  for i = 1, 5 do limiter[i] = tonumber(words[at + i]) end
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
  local bucket = {
    key = KEYS[key], now = now, rate = limiter.rate, length = ends - start,
    horizon = start, forget = previous, present = ends, counters = counters.read(KEYS[key]),
  }
  counters.take_stock(bucket)
  return bucket
end

-- What is left, and when there will be more.
function fixed_window.tell(bucket)
  return counters.remaining(bucket), bucket.used > 0 and bucket.present - bucket.now or 0
end

-- Judges a request; writes nothing.
function fixed_window.check(bucket, permits)
  if permits == 0 or permits <= counters.remaining(bucket) then return true, 0 end
  return false, permits <= bucket.rate and bucket.present - bucket.now or -1
end

-- Takes permits that check() granted.
function fixed_window.charge(bucket, permits)
  if permits > 0 then counters.charge(bucket, permits) end
end

-- Writes what was charged in this call.
function fixed_window.save(bucket)
  counters.save(bucket, bucket.present - bucket.now + math.min(bucket.length, HOUR))
end

-- After a refusal: nothing is written, unless windows end after the present one.
function fixed_window.settle(bucket)
  counters.settle(bucket)
end

-- Takes permits out of their window, as if they had never been granted.
function fixed_window.give_back(limiter, key, permits, at)
  local _, _, ends = window_of(limiter, at)
  if ends then counters.remove(KEYS[key], permits, ends) end
end
