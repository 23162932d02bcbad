-- token_bucket: a permit comes back exactly one interval after it was granted. The translation of
-- src/limit/token_bucket.rs, where the law is told; a property test holds the two equal.
--
-- KEYS  of a bucket: one string, a log as shared.lua has it, each entry dated when it was granted
-- ARGV  rate, interval (ms)
--
-- Invariant: at most 512 entries are stored. Above a rate of 512, grants of one slot of time share an entry, dated at the
-- latest of them. The key lives for as long as anybody may count its newest entry, and a second longer.

local MAX_ENTRIES = 512
-- How many intervals a longer one of another rule is retained for at most.
local MOST_RETAINED = 64
local MARGIN = 1000

local token_bucket = { keys = 1, args = 2 }

-- What the buckets of a limiter have in common.
function token_bucket.limiter(words)
  local rate, interval = tonumber(words[1]), tonumber(words[2])
  return { rate = rate, interval = interval, keep = text(interval + MARGIN) }
end

-- A bucket as it is stored.
function token_bucket.open(limiter, key, now)
  local bucket = log.open(key, now, limiter)
  log.read(bucket, now - limiter.interval)
  return bucket
end

-- Milliseconds until an entry returns; one dated ahead of the clock counts as made now.
local function returns_in(bucket, date)
  return math.min(date or bucket.now, bucket.now) + bucket.limiter.interval - bucket.now
end

-- Judges a request; writes nothing.
function token_bucket.check(bucket, permits)
  local rate = bucket.limiter.rate
  local over = bucket.used + permits - rate
  if over <= 0 or permits == 0 then return true, 0 end
  return false, permits <= rate and returns_in(bucket, log.date_of(bucket, over)) or -1
end

-- What remains, and when there will be more.
function token_bucket.tell(bucket)
  local remaining = bucket.limiter.rate - bucket.used
  return remaining > 0 and remaining or 0, bucket.used > 0 and returns_in(bucket, bucket.oldest) or 0
end

-- How long entries are kept: by the longest interval that anyone has judged by of late. While gateways with an old and a
-- new rule run side by side, the one with the shorter interval must not drop what the other still counts.
local function horizon_of(bucket)
  local interval = bucket.limiter.interval
  if (bucket.last or interval) == interval and bucket.retain == 0 then return interval end
  local retain = bucket.retained_until > bucket.now and bucket.retain or 0
  return math.min(math.max(interval, bucket.last, retain), MOST_RETAINED * interval)
end

-- The first and the last moment of the slot that a grant belongs to; one millisecond where grants share no entries.
local function slot_of(limiter, horizon, at)
  if limiter.rate * math.ceil(horizon / limiter.interval) <= MAX_ENTRIES then return at, at end
  local slot = math.ceil(horizon / (MAX_ENTRIES - 1))
  local first = math.floor(at / slot) * slot
  return first, first + slot - 1
end

-- Takes permits that check() granted.
function token_bucket.charge(bucket, permits)
  if permits == 0 then return end
  local now, horizon = bucket.now, horizon_of(bucket)
  bucket.horizon = horizon
  log.charge(bucket, permits, now - horizon, slot_of(bucket.limiter, horizon, now), now)
end

-- Writes what was charged in this call. If that changes the interval, the longer one is retained for twice its length.
function token_bucket.save(bucket)
  local limiter, horizon, last = bucket.limiter, bucket.horizon, bucket.last
  if last and last ~= limiter.interval then
    bucket.retain, bucket.retained_until = horizon, bucket.now + 2 * horizon
  elseif bucket.retained_until <= bucket.now then
    bucket.retain, bucket.retained_until = 0, 0
  end
  bucket.last = limiter.interval
  log.write(bucket, bucket.now, horizon == limiter.interval and limiter.keep or text(horizon + MARGIN))
end

-- After a refusal: writes nothing, unless the clock went back, or a rule with a shorter interval would soon forget what
-- this one counts. That is remembered at most once in an interval.
function token_bucket.settle(bucket)
  local last, interval, now = bucket.last, bucket.limiter.interval, bucket.now
  if not last then return end
  local lasts = bucket.retain >= interval and bucket.retained_until - now >= 2 * interval
  local keep = horizon_of(bucket)
  if last < interval and not lasts then
    bucket.retain, bucket.retained_until, keep = interval, now + 3 * interval, math.max(keep, interval)
    if bucket.date <= now then log.write_header(bucket, text(keep + MARGIN)) end
  end
  if bucket.date > now then
    log.begin(bucket, now - keep, now, now)
    log.write(bucket, now, text(keep + MARGIN))
  end
end

-- Takes permits out of the log, as if they had never been granted.
function token_bucket.give_back(limiter, key, permits, at, now)
  local bucket = token_bucket.open(limiter, key, now)
  log.take_out(bucket, permits, slot_of(limiter, horizon_of(bucket), at))
end

algorithms.token_bucket = token_bucket
