-- fixed_window: at most `rate` permits from one boundary of a calendar to the next. The translation of
-- src/limit/fixed_window.rs, where the law is told; a property test holds the two equal.
--
-- KEYS  window  the counters of the present window and of the one before it (see counters.lua)
-- ARGV  permits asked for, rate, and five boundaries (ms): those around the window of the caller's present (give_back:
--       of the moment of the grant), two before it and one after it. They choose nothing but what is known here.
-- check() returns a bucket, as algorithms.lua says; one that is `unknown` if `now` is in no window that was sent.
--
-- Invariant: `now` alone says which window counts. The key lives until its window has ended, and as long again, at most
-- an hour, for a clock that is set back over the boundary.

local fixed_window = { keys = 1, args = 7 }

local HOUR = 60 * 60 * 1000

-- The window that a moment is in, and the start of the one before it; nil if it was not sent.
local function window_of(arg, at)
  for i = arg + 2, arg + 4 do
    local start, ends = tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
    if start <= at and at < ends then return tonumber(ARGV[i]), start, ends end
  end
end

-- Judges one limit; writes nothing.
function fixed_window.check(key, arg, now)
  local previous, start, ends = window_of(arg, now)
  if not ends then return { unknown = true, granted = false } end
  local bucket = {
    key = KEYS[key], now = now, permits = tonumber(ARGV[arg]), rate = tonumber(ARGV[arg + 1]),
    length = ends - start, horizon = start, forget = previous, present = ends, counters = counters.read(KEYS[key]),
  }
  counters.judge(bucket)
  bucket.wait = 0
  if not bucket.granted then bucket.wait = bucket.permits <= bucket.rate and ends - now or -1 end
  bucket.reset = bucket.used > 0 and ends - now or 0
  return bucket
end

-- Takes what check() granted; nothing is written for a request that only asks.
function fixed_window.charge(bucket)
  if bucket.permits == 0 then return end
  local rest = bucket.present - bucket.now
  counters.charge(bucket, rest + math.min(bucket.length, HOUR))
  bucket.reset = rest
end

-- After a refusal: nothing is written, unless windows end after the present one.
function fixed_window.settle(bucket)
  counters.settle(bucket)
end

-- Takes permits out of their window, as if they had never been granted.
function fixed_window.give_back(key, arg, at)
  local _, _, ends = window_of(arg, at)
  if ends then counters.remove(KEYS[key], tonumber(ARGV[arg]), ends) end
end
