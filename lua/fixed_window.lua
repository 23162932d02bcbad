-- fixed_window: at most `rate` permits from one boundary of a calendar to the next. The translation of
-- src/limit/fixed_window.rs, where the law is told; a property test holds the two equal.
--
-- KEYS  of a bucket: one string, a log as shared.lua has it, each entry dated when its window ends
-- ARGV  rate, and five boundaries (ms): those around the window of the caller's present (give_back: of the moment of the
--       grant), two before it and one after it. They choose nothing but what is known here.
-- Returns what admit.lua says of an algorithm; its limiter is `unknown` if `now` is in no window that was sent
--
-- Invariant: `now` alone says which window counts. The key lives until its window has ended, and as long again, at most
-- an hour, for a clock that is set back over the boundary.

local fixed_window = log.algorithm(6)

local HOUR = 60 * 60 * 1000

-- The window of a moment, and the start of the one before it; nil if the caller did not send it.
local function window_of(words, at)
  for i = 2, 4 do
    local start, ends = tonumber(words[i + 1]), tonumber(words[i + 2])
    if start <= at and at < ends then return tonumber(words[i]), start, ends end
  end
end

-- What all buckets of a limiter share.
function fixed_window.limiter(words, now)
  local previous, start, ends = window_of(words, now)
  if not ends then return { unknown = true, words = words, expired = now } end
  return {
    rate = tonumber(words[1]), words = words, now = now, present = ends, returns_at = ends, expired = start,
    forget = previous, joins = ends, keep = text(ends - now + math.min(ends - start, HOUR)), longest = 0,
    longest_until = 0,
  }
end

-- Takes permits out of their window, as if they had never been granted.
function fixed_window.give_back(limiter, key, permits, at)
  local _, _, ends = window_of(limiter.words, at)
  if ends then log.take_out(log.open(limiter, key), permits, ends, ends) end
end

algorithms.fixed_window = fixed_window
