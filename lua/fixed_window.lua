-- fixed_window: at most `rate` permits from one calendar boundary to the next. A translation of
-- crates/limit/src/algorithm/fixed_window.rs, which documents the algorithm; a property test checks that both decide
-- equally.
--
-- KEYS  of a bucket: one string, a log as in shared.lua, each entry dated at the end of its window
-- ARGV  rate, five boundaries (ms), and the mean length of a window (ms). The boundaries are those around the window of
--       the caller's time (give_back: of the time of the grant), two before it and one after it. They only list
--       windows; `now` selects one of them.
-- Adds an algorithm, as documented in admit.lua; its limiter is `unknown` if `now` is in none of the listed windows
--
-- Invariant: only `now` selects the window. The key expires one further window length after the end of its window, but
-- at most an hour after it, so that a clock that is set back over the boundary still finds it.

local fixed_window = log.algorithm(7)

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
    rate = tonumber(words[1]), words = words, now = now, present = ends, returns_at = ends, starts = start, expired = start,
    forget = previous, joins = ends, keep = text(ends - now + math.min(ends - start, HOUR)), longest = 0,
    longest_until = 0, mean = tonumber(words[7]), pay = fixed_window.pay, wait_for_debt = fixed_window.wait_for_debt,
  }
end

-- Removes permits from their window, as if they had never been granted. In the newest window, they pay
-- debt first.
function fixed_window.give_back(limiter, key, permits, at)
  local _, _, ends = window_of(limiter.words, at)
  if not ends then return end
  local bucket = log.read(limiter, key)
  local paid = bucket.date == ends and bucket.held >= permits and math.min(permits, bucket.debt) or 0
  bucket.debt = bucket.debt - paid
  log.remove_permits(bucket, permits - paid, ends, ends)
end

-- Charges permits in any case. If there is debt then, all entries of the window become one, so that the newest entry
-- has all permits of its window.
function fixed_window.charge_unconditionally(bucket, permits)
  local limiter, list, held = bucket.limiter, log.entries(bucket), 0
  if bucket.used + permits > limiter.rate then
    while #list > 0 and list[#list].date > limiter.starts do held = held + table.remove(list).permits end
    bucket.first = #list
    if held > 0 then list[#list + 1] = { permits = held, date = limiter.present } end
    log.replace(bucket, list)
  end
  log.charge_unconditionally(bucket, permits)
end

-- Pays debt: first with permits that a raised rate has added to the newest window, then with the permits of all later
-- windows. If the newest window is the present one, it can contain entries of another unit.
function fixed_window.pay(bucket)
  local limiter = bucket.limiter
  local list, used = log.entries(bucket), 0
  local newest, passed = list[#list], limiter.starts - bucket.date
  for _, one in ipairs(list) do
    if one == newest or one.date > limiter.starts then used = used + one.permits end
  end
  local paid = math.min(bucket.debt, math.max(0, limiter.rate - used))
  newest.permits, bucket.debt = newest.permits + paid, bucket.debt - paid
  if passed >= 0 and bucket.debt > 0 then
    bucket.debt = math.max(0, bucket.debt - math.floor((passed + limiter.mean / 2) / limiter.mean) * limiter.rate)
    paid = math.min(bucket.debt, limiter.rate)
    if paid > 0 then list[#list + 1] = { permits = paid, date = limiter.present } end
    bucket.debt = bucket.debt - paid
  end
  log.replace(bucket, list)
end

-- Returns the milliseconds until the debt is paid and `permits` are unused. The caller corrects ends of windows that
-- are not listed.
function fixed_window.wait_for_debt(bucket, permits)
  local limiter = bucket.limiter
  local windows = math.max(1, math.ceil((bucket.debt + permits) / limiter.rate)) - 1
  return math.min(MAX_WAIT, limiter.present - limiter.now + math.min(MAX_WAIT, windows * limiter.mean))
end

algorithms.fixed_window = fixed_window
