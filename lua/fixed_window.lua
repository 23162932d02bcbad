-- fixed_window: at most `rate` permits from one calendar boundary to the next. A translation of
-- src/limit/fixed_window.rs, which documents the algorithm; a property test checks that both decide equally.
--
-- KEYS  of a bucket: one string, a log as in shared.lua, each entry dated at the end of its window
-- ARGV  rate, and five boundaries (ms): those around the window of the caller's time (give_back: of the time of the
--       grant), two before it and one after it. They only list windows; `now` selects one of them.
-- Adds an algorithm, as documented in admit.lua; its limiter is `unknown` if `now` is in none of the listed windows
--
-- Invariant: only `now` selects the window. The key expires one further window length after the end of its window, but
-- at most an hour after it, so that a clock that is set back over the boundary still finds it.

local fixed_window = log.algorithm(6)

local HOUR = 60 * 60 * 1000

-- Returns the start of the previous window, and the start and end of the window that contains `at`; nil if not listed.
local function window_of(words, at)
  for i = 2, 4 do
    local start, ends = tonumber(words[i + 1]), tonumber(words[i + 2])
    if start <= at and at < ends then return tonumber(words[i]), start, ends end
  end
end

-- Returns the data that all buckets of a limiter share.
function fixed_window.limiter(words, now)
  local previous, start, ends = window_of(words, now)
  if not ends then return { unknown = true, words = words, expired = now } end
  return {
    rate = tonumber(words[1]), words = words, now = now, present = ends, returns_at = ends, expired = start,
    forget = previous, joins = ends, keep = text(ends - now + math.min(ends - start, HOUR)), longest = 0,
    longest_until = 0,
  }
end

-- Removes permits from their window, as if they had never been granted.
function fixed_window.give_back(limiter, key, permits, at)
  local _, _, ends = window_of(limiter.words, at)
  if ends then log.remove_permits(log.open(limiter, key), permits, ends, ends) end
end

algorithms.fixed_window = fixed_window
