-- gcra_warm_up: gcra whose rate rises from a third to the full rate after idle time. A translation of
-- crates/limit/src/algorithm/gcra/warm_up/mod.rs, which documents the algorithm; a property test checks that both
-- decide equally.
--
-- KEYS  of a bucket: one string, fractions as in shared.lua, then the heat: whole permits (6 bytes) and parts of one
--       (5)
-- ARGV  rate, interval (ms), burst, warm-up (ms)
-- Adds an algorithm, as documented in admit.lua
--
-- Invariant: the string expires at least one second after its bucket is full and cold. All numbers are exact integers
-- below 2^53, except larger ones of which only the sign or the comparison with `max_heat` is used.

local STEPS, HEAT_BYTES, WITH_HEAT = 16, 11, FRACTIONS .. 'I6I5'

local warm = {
  keys = 1, args = 4, serial = true, check = algorithms.gcra.check, status = algorithms.gcra.status,
  debt_wait = fractions.debt_wait, save = fractions.save,
  on_refusal = fractions.on_refusal,
}

-- Returns the data that all buckets of a limiter share.
function warm.limiter(words, now)
  local rate = tonumber(words[1])
  local unit = math.ceil(rate * tonumber(words[4]) / (2 * STEPS * STEPS))
  return {
    rate = rate, interval = tonumber(words[2]), burst = tonumber(words[3]), now = now, unit = unit,
    max_heat = 2 * STEPS * STEPS * unit,
  }
end

-- Returns the extra cost of all permits up to this heat: of its complete steps in parts, and of the rest in sixteenths
-- of a part.
local function total(limiter, heat)
  local of_step = STEPS * limiter.unit
  local steps = math.floor(heat / of_step)
  if steps >= STEPS then return STEPS * STEPS * limiter.unit, 0 end
  return limiter.unit * steps * (2 * STEPS - steps), heat % of_step * (2 * (STEPS - steps) - 1)
end

-- Returns the extra cost of the permits that raise the heat from `from` to `to`, rounded up.
local function extra(limiter, from, to)
  local low, low_part = total(limiter, from)
  local high, high_part = total(limiter, to)
  return high - low + math.ceil((high_part - low_part) / STEPS)
end

-- Reads a bucket and computes its permits in use and its heat at `now`. An invalid value counts as a missing one.
function warm.open(limiter, key, now)
  local bucket = fractions.open(limiter, key, now, HEAT_BYTES)
  bucket.heat = 0
  if not bucket.date then return bucket end
  local _, date, used, parts, interval, heat, heat_parts = from_bytes(WITH_HEAT, bucket.text)
  local own = limiter.interval
  local whole, rest = fractions.multiply_divide(parts, own, interval)
  local returned, returned_parts = fractions.returned(limiter, now - date)
  local cooled = (returned - used) * own + returned_parts - whole - (rest > 0 and 1 or 0)
  heat = math.min(limiter.max_heat, heat * own + fractions.multiply_divide(heat_parts, own, interval))
  bucket.heat = math.max(0, heat - math.max(0, cooled))
  return bucket
end

-- Charges permits that check() granted, and their extra cost.
function warm.charge(bucket, permits)
  local limiter = bucket.limiter
  local heat = math.min(limiter.max_heat, bucket.heat + permits * limiter.interval)
  fractions.lower(bucket, -permits, -extra(limiter, bucket.heat, heat))
  bucket.heat, bucket.added = heat, true
end

-- Charges permits in any case.
function warm.charge_unconditionally(bucket, permits)
  warm.charge(bucket, fractions.chargeable(bucket, permits))
end

-- Gives back the permits that have not returned since they were granted, and at most the extra cost that they were
-- charged with. If the clock went back, their number is unknown: gives back nothing.
function warm.give_back(limiter, key, granted, at, now)
  local bucket = warm.open(limiter, key, now)
  if at > now or not bucket.date then return end
  local returned, returned_parts = fractions.returned(limiter, now - at)
  local own = granted * limiter.interval
  local paid = 0
  if returned * limiter.interval < limiter.max_heat then
    -- An upper bound of the heat after the grant: the bucket has cooled by at most the permits returned since.
    local heat = bucket.heat + returned * limiter.interval + returned_parts
    if heat < limiter.max_heat then paid = extra(limiter, math.max(0, heat - own), heat) end
  end
  if (granted - returned) * limiter.interval + paid - returned_parts <= 0 then return end
  fractions.lower(bucket, granted - returned, paid - returned_parts)
  bucket.heat = math.max(0, bucket.heat - own)
  fractions.save(bucket)
end

algorithms.gcra_warm_up = warm
