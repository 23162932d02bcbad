-- sliding_window: the window is the current segment and those that ended within the interval before now. The translation
-- of src/limit/sliding_window.rs, where the law is told; a property test holds the two equal.
--
-- KEYS  of a bucket: one string, a log as shared.lua has it, each entry dated when its segment ends
-- ARGV  rate, interval (ms), segments
-- Returns what admit.lua says of an algorithm
--
-- Invariant: a permit returns one interval after its segment has ended, so that any interval holds at most `rate`. After
-- a grant there are at most `segments + 1` entries, and the key outlives the last of them by an interval. An entry that
-- lies ahead of the current segment (the clock went back, or segments were longer once) joins it with the next write.

local sliding_window = log.algorithm(3)
sliding_window.grant = log.grant

-- The end of the segment of a moment.
local function segment_end(limiter, at)
  return at - at % limiter.length + limiter.length
end

-- What all buckets of a limiter share.
function sliding_window.limiter(words, now)
  local interval = tonumber(words[2])
  local limiter = { rate = tonumber(words[1]), interval = interval, now = now, length = math.ceil(interval / words[3]) }
  limiter.present = segment_end(limiter, now)
  limiter.expired = math.max(0, now - interval)
  limiter.forget, limiter.keep = limiter.expired, text(limiter.present - now + 2 * interval)
  limiter.joins, limiter.lasts, limiter.longest, limiter.longest_until = limiter.present, limiter.present, 0, 0
  return limiter
end

-- Takes permits out of their segment, as if they had never been granted.
function sliding_window.give_back(limiter, key, permits, at)
  local ends = segment_end(limiter, at)
  log.take_out(log.open(limiter, key), permits, ends, ends)
end

algorithms.sliding_window = sliding_window
