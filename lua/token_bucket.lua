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

local token_bucket = { keys = 1, args = 2, open = log.open, check = log.check, tell = log.tell, grant = log.grant }

-- The first and the last moment of the slot that a grant belongs to, where entries are kept for `horizon`; one millisecond
-- where grants share no entries.
local function slot_of(limiter, horizon, at)
  if limiter.rate * math.ceil(horizon / limiter.interval) <= MAX_ENTRIES then return at, at end
  local slot = math.ceil(horizon / (MAX_ENTRIES - 1))
  local first = at - at % slot
  return first, first + slot - 1
end

-- By how much a key may outlive its newest entry.
local function slack(horizon)
  return math.max(500, math.floor(horizon / 16))
end

-- How long a key lives after a grant.
local function keep_for(horizon)
  return text(horizon + 2 * slack(horizon))
end

-- What all buckets of a limiter share.
function token_bucket.limiter(words, now)
  local rate, interval = tonumber(words[1]), tonumber(words[2])
  local limiter = { rate = rate, interval = interval, now = now, present = now, last = interval, expired = now - interval }
  limiter.joins, limiter.keep, limiter.lasts = slot_of(limiter, interval, now), keep_for(interval), now - now % slack(interval)
  return limiter
end

-- How long entries are kept: by the longest interval that anyone has judged by of late. While gateways with an old and a
-- new rule run side by side, the one with the shorter interval must not drop what the other still counts.
local function horizon_of(bucket)
  local interval, now = bucket.limiter.interval, bucket.limiter.now
  local last, retain = bucket.last or interval, bucket.retain
  if last == interval and not retain then return interval end
  local retained = retain and bucket.retained_until > now and retain or 0
  return math.min(math.max(interval, last, retained), MOST_RETAINED * interval)
end

-- Takes permits that check() granted.
function token_bucket.charge(bucket, permits)
  if permits == 0 then return end
  local limiter, horizon = bucket.limiter, horizon_of(bucket)
  log.charge(bucket, permits, horizon == limiter.interval and limiter.joins or slot_of(limiter, horizon, limiter.now))
end

-- Writes what was charged in this call. If that changes the interval, the longer one is retained for twice its length.
function token_bucket.save(bucket)
  local limiter, last = bucket.limiter, bucket.last
  local interval, now, horizon = limiter.interval, limiter.now, horizon_of(bucket)
  if last and last ~= interval then
    bucket.retain, bucket.retained_until = horizon, now + 2 * horizon
  elseif bucket.retain and bucket.retained_until <= now then
    bucket.retain, bucket.retained_until = nil, nil
  end
  bucket.last = interval
  log.save(bucket, now - horizon, horizon == interval and limiter.keep or keep_for(horizon))
end

-- After a refusal: writes nothing, unless the clock went back, sums were wrong, or a rule with a shorter interval would soon
-- forget what this one counts. That is remembered at most once in an interval.
function token_bucket.settle(bucket)
  local last, interval, now = bucket.last, bucket.limiter.interval, bucket.limiter.now
  if not last then return end
  local horizon, retain = horizon_of(bucket), bucket.retain
  local lasts = retain and retain >= interval and bucket.retained_until - now >= 2 * interval
  if last < interval and not lasts then
    bucket.retain, bucket.retained_until, horizon = interval, now + 3 * interval, math.max(horizon, interval)
    if bucket.date <= now then log.write_same(bucket, keep_for(horizon)) end
  end
  if bucket.date > now then
    log.charge(bucket, 0, now)
    log.save(bucket, now - horizon, keep_for(horizon))
  elseif bucket.wrong then
    log.write_same(bucket, keep_for(horizon))
  end
end

-- Takes permits out of the log, as if they had never been granted.
function token_bucket.give_back(limiter, key, permits, at, now)
  local bucket = log.open(limiter, key)
  log.take_out(bucket, permits, slot_of(limiter, horizon_of(bucket), at))
end

algorithms.token_bucket = token_bucket
