-- token_bucket: a permit comes back exactly one interval after it was granted. The translation of
-- src/limit/token_bucket.rs, where the law is told; a property test holds the two equal.
--
-- KEYS  of a bucket: one string, a log as shared.lua has it, each entry dated when it was granted
-- ARGV  rate, interval (ms)
-- Returns what admit.lua says of an algorithm
--
-- Invariant: at most 512 entries are stored. Above a rate of 512, grants of one slot of time share an entry, dated at the
-- latest of them. The key lives for as long as any rule may count its newest entry, and longer by `slack` to twice that, so
-- that most grants of a busy bucket need not set its time to live.

local MAX_ENTRIES = 512
-- How many intervals a longer one of another rule is remembered for at most.
local MOST_LONGER = 64

local token_bucket = log.algorithm(2)
token_bucket.grant = log.grant

-- What all buckets of a limiter share that keep entries by the longest interval. Grants of one slot share an entry.
local function limiter_of(rate, interval, now, longest, longest_until)
  local slot, slack = 1, math.max(500, math.floor(longest / 16))
  if rate * math.ceil(longest / interval) > MAX_ENTRIES then slot = math.ceil(longest / (MAX_ENTRIES - 1)) end
  return {
    rate = rate, interval = interval, now = now, present = now, expired = now - interval, forget = now - longest, slot = slot,
    joins = now - now % slot, keep = text(longest + 2 * slack), lasts = now - now % slack, longest = longest,
    longest_until = longest_until,
  }
end

-- What all buckets of a limiter share.
function token_bucket.limiter(words, now)
  local rate, interval = tonumber(words[1]), tonumber(words[2])
  return limiter_of(rate, interval, now, interval, now + 3 * interval)
end

-- Reads a bucket. Entries are kept by the longest interval that anyone has judged by of late: while gateways with an old and a
-- new rule run side by side, the one with the shorter interval must not drop what the other still counts.
function token_bucket.open(limiter, key)
  local bucket, interval = log.open(limiter, key), limiter.interval
  local longest, longest_until = math.min(bucket.longest, MOST_LONGER * interval), bucket.longest_until
  if longest > interval and longest_until > limiter.now then
    bucket.limiter = limiter_of(limiter.rate, interval, limiter.now, longest, longest_until)
  end
  return bucket
end

-- Takes permits out of the log, as if they had never been granted, if they have not returned.
function token_bucket.give_back(limiter, key, permits, at)
  local bucket = token_bucket.open(limiter, key)
  local slot = bucket.limiter.slot
  local from = at - at % slot
  log.take_out(bucket, permits, math.max(from, limiter.expired + 1), from + slot - 1)
end

algorithms.token_bucket = token_bucket
