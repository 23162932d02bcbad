-- sliding_window: the window is the current segment and the segments that ended within the last interval. A translation
-- of crates/limit/src/algorithm/sliding_window.rs, which documents the algorithm; a property test checks that both
-- decide equally.
--
-- KEYS  of a bucket: one string, a log as in shared.lua, each entry dated at the end of its segment
-- ARGV  rate, interval (ms), segments
-- Adds an algorithm, as documented in admit.lua
--
-- Invariant: a permit returns one interval after the end of its segment, so that at most `rate` permits are granted in
-- any interval. After a grant there are at most `segments + 1` entries, and the key outlives the last entry by an
-- interval. The next write merges entries after the current segment into it: the clock went back, or segments were
-- longer before.

local sliding_window = log.algorithm(3)
sliding_window.grant = log.grant

-- Returns the end of the segment that contains `at`.
local function segment_end(limiter, at)
  return at - at % limiter.length + limiter.length
end

-- Returns the data that all buckets of a limiter share.
function sliding_window.limiter(words, now)
  local interval = tonumber(words[2])
  local limiter = { rate = tonumber(words[1]), interval = interval, now = now, length = math.ceil(interval / words[3]) }
  limiter.present = segment_end(limiter, now)
  limiter.expired = math.max(0, now - interval)
  limiter.forget, limiter.keep = limiter.expired, text(limiter.present - now + 2 * interval)
  limiter.mean = interval - interval % limiter.length + limiter.length
  limiter.joins, limiter.lasts, limiter.longest, limiter.longest_until = limiter.present, limiter.present, 0, 0
  return limiter
end

-- Removes permits from their segment, as if they had never been granted.
function sliding_window.give_back(limiter, key, permits, at)
  local ends = segment_end(limiter, at)
  log.remove_permits(log.open(limiter, key), permits, ends, ends)
end

algorithms.sliding_window = sliding_window
