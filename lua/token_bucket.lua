-- token_bucket: a permit becomes available again exactly one interval after it was granted. A translation of
-- crates/limit/src/algorithm/token_bucket.rs, which documents the algorithm; a property test checks that both decide
-- equally.
--
-- KEYS  of a bucket: one string, a log as in shared.lua, each entry dated at its grant
-- ARGV  rate, interval (ms)
-- Adds an algorithm, as documented in admit.lua
--
-- Invariant: at most 512 entries are stored. Above a rate of 512, grants within one merge step share an entry, dated at
-- the latest grant. The key lives as long as any rule can count its newest entry, plus `slack` to twice `slack`, so
-- that most grants of a busy bucket need not set its time to live.

local MAX_ENTRIES = 512
-- The longest interval of another rule that is respected, as a multiple of this rule's interval.
local MAX_LONGER = 64

local token_bucket = log.algorithm(2)
token_bucket.grant = log.grant

-- Returns the shared data of buckets that keep their entries for the `longest` interval.
local function limiter_of(rate, interval, now, longest, longest_until)
  local slot, slack = 1, math.max(500, math.floor(longest / 16))
  if rate * math.ceil(longest / interval) > MAX_ENTRIES then slot = math.ceil(longest / (MAX_ENTRIES - 1)) end
  return {
    rate = rate, interval = interval, now = now, present = now, expired = now - interval, forget = now - longest, slot = slot,
    mean = interval, joins = now - now % slot, keep = text(longest + 2 * slack), lasts = now - now % slack, longest = longest,
    longest_until = longest_until,
  }
end

-- Returns the data that all buckets of a limiter share.
function token_bucket.limiter(words, now)
  local rate, interval = tonumber(words[1]), tonumber(words[2])
  return limiter_of(rate, interval, now, interval, now + 3 * interval)
end

-- Reads a bucket. It keeps entries for the longest interval that any rule has used recently: while gateways with an old
-- and a new rule run side by side, the shorter interval must not drop entries that the longer one still counts.
function token_bucket.open(limiter, key)
  local bucket, interval = log.open(limiter, key), limiter.interval
  local longest, longest_until = math.min(bucket.longest, MAX_LONGER * interval), bucket.longest_until
  if longest > interval and longest_until > limiter.now then
    bucket.limiter = limiter_of(limiter.rate, interval, limiter.now, longest, longest_until)
  end
  return bucket
end

-- Removes permits from the log, as if they had never been granted, unless they have returned.
function token_bucket.give_back(limiter, key, permits, at)
  local bucket = token_bucket.open(limiter, key)
  local slot = bucket.limiter.slot
  local from = at - at % slot
  log.remove_permits(bucket, permits, math.max(from, limiter.expired + 1), from + slot - 1)
end

algorithms.token_bucket = token_bucket
