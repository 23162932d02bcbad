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
-- How many intervals a longer one of another rule is retained for at most.
local MOST_RETAINED = 64

local token_bucket = log.algorithm(2)
token_bucket.grant = log.grant

-- What all buckets of a limiter share that keep entries for `horizon`. Grants of one slot share an entry.
local function limiter_of(rate, interval, now, horizon)
  local slot, slack = 1, math.max(500, math.floor(horizon / 16))
  if rate * math.ceil(horizon / interval) > MAX_ENTRIES then slot = math.ceil(horizon / (MAX_ENTRIES - 1)) end
  return {
    rate = rate, interval = interval, now = now, present = now, last = interval, expired = now - interval, slot = slot,
    forget = now - horizon, joins = now - now % slot, keep = text(horizon + 2 * slack), lasts = now - now % slack,
  }
end

-- What all buckets of a limiter share.
function token_bucket.limiter(words, now)
  local rate, interval = tonumber(words[1]), tonumber(words[2])
  return limiter_of(rate, interval, now, interval)
end

-- Reads a bucket. Entries are kept by the longest interval that anyone has judged by of late: while gateways with an old and a
-- new rule run side by side, the one with the shorter interval must not drop what the other still counts.
function token_bucket.open(limiter, key, now, chunk)
  local bucket, interval = log.open(limiter, key, now, chunk), limiter.interval
  local last, retain = bucket.last or interval, bucket.retain
  if last == interval and not retain then return bucket end
  local retained = retain and bucket.retained_until > now and retain or 0
  local horizon = math.min(math.max(interval, last, retained), MOST_RETAINED * interval)
  bucket.limiter = limiter_of(limiter.rate, interval, now, horizon)
  return bucket
end

-- Writes what was charged in this call. If that changes the interval, the longer one is retained for twice its length.
function token_bucket.save(bucket)
  local limiter, last = bucket.limiter, bucket.last
  local interval, now, horizon = limiter.interval, limiter.now, limiter.now - limiter.forget
  if last and last ~= interval then
    bucket.retain, bucket.retained_until = horizon, now + 2 * horizon
  elseif bucket.retain and bucket.retained_until <= now then
    bucket.retain, bucket.retained_until = nil, nil
  end
  log.save(bucket)
end

-- After a refusal: as in other logs, or if a rule with a shorter interval would soon forget what this one counts. That is
-- remembered at most once in an interval.
function token_bucket.settle(bucket)
  local last, retain, interval, now = bucket.last, bucket.retain, bucket.limiter.interval, bucket.limiter.now
  local lasts = retain and retain >= interval and bucket.retained_until - now >= 2 * interval
  if last and last < interval and not lasts then
    bucket.retain, bucket.retained_until, bucket.wrong = interval, now + 3 * interval, true
  end
  log.settle(bucket)
end

-- Takes permits out of the log, as if they had never been granted, if they have not returned.
function token_bucket.give_back(limiter, key, permits, at, now)
  local bucket = token_bucket.open(limiter, key, now)
  local slot = bucket.limiter.slot
  local from = at - at % slot
  log.take_out(bucket, permits, math.max(from, limiter.expired + 1), from + slot - 1)
end

algorithms.token_bucket = token_bucket
