-- shared: helpers that several algorithms use: the time, logs of grants, and fractions of a permit.
--
-- KEYS  used only through the algorithms
-- ARGV  used only through the algorithms
-- Returns nothing; the other files are appended to it.
--
-- Invariant: no data of a bucket is kept between calls.

local call, try, to_bytes, from_bytes, byte = redis.call, redis.pcall, struct.pack, struct.unpack, string.byte

-- Formats an integer without an exponent.
local function text(number)
  return string.format('%.0f', number)
end

-- Returns the decision time in milliseconds: the given time, or the server's. Called once for each call.
local function decision_time(given)
  if given ~= '' then return tonumber(given) end
  local time = call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- A log is the stored form of a bucket of token_bucket and of the windows: one string, big-endian. It starts with the
-- entries, oldest first, each with its permits (5 bytes) and its date (6, ms). Then follow the permits of all entries
-- (5), the longest interval that any rule has used recently (5, ms; 0 in windows), the number of skipped entries (2),
-- the format (1), and the number of entries, including skipped ones (4). The longest interval is respected for three
-- times its length after the newest entry; in formats 4 and 5, until the time that is stored next to the interval in
-- place of the first skipped entry. Format 5 has the debt (crates/limit/src/algorithm/debt.rs) in place of the second.
-- So a single write at the end of the string adds an entry and updates all other data. The string is rewritten if more
-- than half of its entries are skipped, or if it would become shorter. open() reads the whole string into a bucket with
-- these fields:
--   text, held, date                    the string; permits and date of the newest entry
--   stored, skipped, count              as above
--   longest, longest_until              as above
--   first, oldest, used                 the number and the date of the entry that returns next; the permits in use
--   counted, wrong                      whether all entries were counted, and whether the stored sums were wrong
--   added                               the permits that this call adds, in one entry
--   debt, is_replaced                   the debt; whether its payments have replaced the entries
-- The limiter of a bucket has these fields:
--   rate, now, present, expired         entries dated `expired` or before have returned; entries dated after `present`
--                                       count as granted at `present`; a new grant is dated `present`
--   interval, returns_at                an entry returns one interval after its date, or all entries return at
--                                       `returns_at`
--   forget                              entries dated at this time or before are dropped
--   joins, lasts                        a grant joins the newest entry if it is dated `joins` or later; grant() need
--                                       not extend the time to live if the newest entry is dated `lasts` or later
--   keep                                the time to live (ms)
--   longest, longest_until              the values that a grant stores in the bucket; 0 in windows
--   mean, length                        the mean time in which `rate` permits pay debt; the length of segments, if any
local log = {}

local ENTRY, BYTES = '>I5I6', 11
-- The newest entry and all data after it.
local ENDING, ENDING_BYTES, FORMAT, FORMAT_DEBT = '>I5I6I5I5I2BI4', 28, 3, 5
-- The largest debt, and the longest wait that is returned: a thousand years.
local MAX_DEBT, MAX_WAIT = 4294967296, 1000 * 366 * 24 * 60 * 60 * 1000
-- The number of its lengths for which an interval is respected; the bytes that grant() reads; the maximal number of
-- entries of a bucket, and their bytes. Before a refusal, a log longer than a chunk is recounted every RECOUNT_EVERY
-- milliseconds.
local REMEMBERED, CHUNK, MAX_STORED, MAX_BYTES, RECOUNT_EVERY = 3, 512, 2978, 32775, 64

-- Parses the end of a log. Returns nothing if the value is not a valid log: another type or format (older formats have
-- a 0 in the fifth byte from the end), a wrong length, or too many entries.
local function read_ending(key, chunk)
  local format = #chunk >= ENDING_BYTES and byte(chunk, -5)
  if not format or format < FORMAT or format > FORMAT_DEBT then return end
  local held, date, stored, longest, skipped, _, count = from_bytes(ENDING, chunk, #chunk - ENDING_BYTES + 1)
  local length = (count - 1) * BYTES + ENDING_BYTES
  if skipped >= count or skipped < format - FORMAT or count > MAX_STORED then return end
  if length == #chunk or #chunk == CHUNK and length == call('STRLEN', key) then
    return held, date, stored, longest, skipped, format, count
  end
end

-- Checks and charges in one step, in the usual case: enough permits are free, no rule has a longer interval, the clock
-- has not gone back, and writing the end of the string suffices. Returns status(), or nothing in all other cases.
function log.grant(limiter, key, permits)
  key = KEYS[key]
  local chunk, rate, present, expired = try('GETRANGE', key, '-512', '-1'), limiter.rate, limiter.present, limiter.expired
  local held, date, used, longest, first, format, count = read_ending(key, chunk)
  local is_usual = format == FORMAT and longest == limiter.longest
  if chunk == '' or is_usual and date <= expired then
    if permits > rate then return end
    call('SET', key, to_bytes(ENDING, permits, present, permits, limiter.longest, 0, FORMAT, 1), 'PX', limiter.keep)
    return rate - permits, present + limiter.interval - limiter.now
  end
  if not is_usual or date > present or used == 0 then return end
  local newest, oldest, part, at = count - 1, date, chunk, #chunk - ENDING_BYTES + 1 - (count - 1) * BYTES
  while first < newest do
    local offset = at + first * BYTES
    if offset < 1 or offset + BYTES > #part + 1 then
      part, at, offset = call('GETRANGE', key, first * BYTES, first * BYTES + 87), 1 - first * BYTES, 1
    end
    local returned, dated = from_bytes(ENTRY, part, offset)
    if dated > expired then oldest = dated break end
    first, used = first + 1, used - returned
  end
  if used + permits > rate or used < held then return end
  used = used + permits
  if date >= limiter.joins then
    permits = permits + held
    if first == newest then oldest = present end
  else
    newest = count
  end
  if 2 * first <= newest then
    call('SETRANGE', key, newest * BYTES, to_bytes(ENDING, permits, present, used, longest, first, FORMAT, newest + 1))
    if date < limiter.lasts then call('PEXPIRE', key, limiter.keep) end
  elseif part == chunk then
    local entries = string.sub(chunk, at + first * BYTES, at + newest * BYTES - 1)
    local bytes = to_bytes(ENDING, permits, present, used, longest, 0, FORMAT, newest - first + 1)
    call('SET', key, entries .. bytes, 'PX', limiter.keep)
  else
    return
  end
  return rate - used, oldest + limiter.interval - limiter.now
end

-- Returns the permits and the date of the entry with this number, from 0.
local function entry(bucket, number)
  return from_bytes(ENTRY, bucket.text, number * BYTES + 1)
end

-- Sums up all entries, since the stored sums may be corrupt. Returns whether they were wrong.
local function recount(bucket)
  local used, stored = bucket.added or 0, 0
  for number = bucket.skipped, bucket.count - 1 do
    local permits = entry(bucket, number)
    stored = stored + permits
    if number >= bucket.first then used = used + permits end
  end
  bucket.counted, bucket.wrong = true, stored ~= bucket.stored or used ~= bucket.used
  bucket.stored, bucket.used = stored, used
  return bucket.wrong
end

-- Reads a whole bucket, without its permits in use.
function log.read(limiter, key)
  local text = try('GETRANGE', KEYS[key], -MAX_BYTES, '-1')
  local held, date, stored, longest, skipped, format, count = read_ending(KEYS[key], text)
  if not held then text, date, stored, longest, skipped, count = '', 0, 0, 0, 0, 0 end
  local longest_until = date + REMEMBERED * longest
  if format and format > FORMAT then longest, longest_until = from_bytes(ENTRY, text) end
  if stored == 0 then held, date = 0, 0 end
  return {
    key = KEYS[key], limiter = limiter, text = text, held = held, date = date, stored = stored, skipped = skipped,
    count = count, longest = longest, longest_until = longest_until, first = count, oldest = date, used = 0, added = nil,
    debt = format == FORMAT_DEBT and stored > 0 and from_bytes(ENTRY, text, BYTES + 1) or 0, is_replaced = nil,
  }
end

-- Computes the permits in use.
local function count_used(bucket)
  local limiter, held, date = bucket.limiter, bucket.held, bucket.date
  bucket.first, bucket.oldest, bucket.used = bucket.count, date, 0
  if date <= limiter.expired then return bucket end
  bucket.first, bucket.used = bucket.skipped, bucket.stored
  while bucket.first < bucket.count - 1 do
    local permits, dated = entry(bucket, bucket.first)
    bucket.oldest = dated
    if dated > limiter.expired then break end
    bucket.first, bucket.used, bucket.oldest = bucket.first + 1, bucket.used - permits, date
  end
  if bucket.used < held then recount(bucket) end
  return bucket
end

-- Returns all entries, oldest first.
function log.entries(bucket)
  local list = {}
  for number = bucket.skipped, bucket.count - 1 do
    local permits, date = entry(bucket, number)
    list[#list + 1] = { permits = permits, date = date }
  end
  return list
end

-- Replaces all entries of an open bucket.
function log.replace(bucket, list)
  local bytes, stored = {}, 0
  for number, one in ipairs(list) do
    bytes[number], stored = to_bytes(ENTRY, one.permits, one.date), stored + one.permits
  end
  local newest = list[#list] or { permits = 0, date = 0 }
  bucket.text, bucket.skipped, bucket.count, bucket.stored = table.concat(bytes), 0, #list, stored
  bucket.held, bucket.date, bucket.is_replaced = newest.permits, newest.date, true
end

-- Returns the date of permits that are granted at `at`.
local function dated(limiter, at)
  local length = limiter.length
  return length and at - at % length + length or at
end

-- Skips all whole periods of a list but those that pay the rest of the debt; returns this rest.
local function skip_periods(limiter, list, first, debt, til)
  local period = limiter.mean
  local ended = math.floor((til - list[#list].date - limiter.interval) / period) + 1
  local periods = math.max(0, math.min(ended, math.floor((debt - 1) / limiter.rate)))
  for number = first, #list do list[number].date = list[number].date + periods * period end
  return debt - periods * limiter.rate
end

-- Pays debt with the permits of a list that return until `til`. Returns the list, the rest of the debt, and the time of
-- the last payment, if there was one.
local function pay_from(limiter, list, debt, til)
  local used, first, last, old_entries = 0, 1, nil, #list
  for _, one in ipairs(list) do used = used + one.permits end
  local newest = list[1] and list[#list].date or dated(limiter, til)
  local time = newest
  while true do
    local paid = math.min(debt, math.max(0, limiter.rate - used))
    if paid > 0 then
      if first <= #list and list[#list].date == newest then
        list[#list].permits = list[#list].permits + paid
      else
        list[#list + 1] = { permits = paid, date = newest }
      end
      used, last, debt = used + paid, time, debt - paid
    end
    if debt == 0 then break end
    if old_entries == 0 and first <= #list then
      debt = skip_periods(limiter, list, first, debt, til)
      newest = list[#list].date
    end
    local oldest = list[first]
    if not oldest or oldest.date + limiter.interval > til then break end
    time, used, first, old_entries = oldest.date + limiter.interval, used - oldest.permits, first + 1, old_entries - 1
    newest = math.max(newest, dated(limiter, time))
  end
  local rest = {}
  for number = first, #list do rest[#rest + 1] = list[number] end
  return rest, debt, last
end

-- Pays the debt of a bucket with the permits that have returned until now.
function log.pay(bucket)
  local list
  list, bucket.debt = pay_from(bucket.limiter, log.entries(bucket), bucket.debt, bucket.limiter.now)
  log.replace(bucket, list)
end

-- Returns the milliseconds until the debt is paid and `permits` are unused, as if the permits were debt, too.
function log.wait_for_debt(bucket, permits)
  local limiter, list = bucket.limiter, log.entries(bucket)
  for _, one in ipairs(list) do one.date = math.min(one.date, limiter.present) end
  local added, newest = bucket.added or 0, list[#list]
  if added > 0 and newest and newest.date >= limiter.joins then
    newest.permits, newest.date = newest.permits + added, limiter.present
  elseif added > 0 then
    list[#list + 1] = { permits = added, date = limiter.present }
  end
  local _, debt, last = pay_from(limiter, list, bucket.debt + permits, limiter.now + MAX_WAIT)
  return debt == 0 and last and last - limiter.now or MAX_WAIT
end

-- Reads a whole bucket, pays its debt, and computes its permits in use.
function log.open(limiter, key)
  local bucket = log.read(limiter, key)
  if bucket.debt > 0 then (limiter.pay or log.pay)(bucket) end
  return count_used(bucket)
end

-- Returns the milliseconds until an entry with this date returns.
local function returns_in(limiter, date)
  return (limiter.returns_at or math.min(date, limiter.present) + limiter.interval) - limiter.now
end

-- Returns the date of the entry with whose return `permits` have returned, oldest first.
local function date_of(bucket, permits)
  for number = bucket.first, bucket.count - 1 do
    local held, date = entry(bucket, number)
    permits = permits - held
    if permits <= 0 then return number < bucket.count - 1 and date or bucket.date end
  end
  return bucket.limiter.present
end

-- Checks a request; writes nothing.
function log.check(bucket, permits)
  local limiter = bucket.limiter
  local over = bucket.used + permits - limiter.rate
  if over <= 0 or permits == 0 then return true, 0 end
  if permits > limiter.rate then return false, -1 end
  if bucket.debt > 0 then return false, (limiter.wait_for_debt or log.wait_for_debt)(bucket, permits) end
  local trusted = bucket.counted or (#bucket.text > CHUNK and limiter.now % RECOUNT_EVERY > 0)
  if not trusted and recount(bucket) then return log.check(bucket, permits) end
  return false, math.max(1, returns_in(limiter, date_of(bucket, over)))
end

-- Returns the time until the debt is paid, or 0.
function log.debt_wait(bucket)
  return bucket.debt > 0 and (bucket.limiter.wait_for_debt or log.wait_for_debt)(bucket, 0) or 0
end

-- Returns the remaining permits, and the time until more are available.
function log.status(bucket)
  local limiter, used = bucket.limiter, bucket.used
  if bucket.debt > 0 then return 0, (limiter.wait_for_debt or log.wait_for_debt)(bucket, 1) end
  return math.max(0, limiter.rate - used), used > 0 and returns_in(limiter, bucket.oldest) or 0
end

-- Charges permits that check() granted.
function log.charge(bucket, permits)
  local present, is_joined = bucket.limiter.present, bucket.date >= bucket.limiter.joins
  if bucket.used == 0 or is_joined and bucket.first >= bucket.count - 1 then bucket.oldest = present end
  if is_joined then bucket.date = present end
  bucket.added, bucket.used = (bucket.added or 0) + permits, bucket.used + permits
end

-- Charges permits in any case; those that the bucket lacks are debt.
function log.charge_unconditionally(bucket, permits)
  local granted = math.min(permits, math.max(0, bucket.limiter.rate - bucket.used))
  if granted > 0 then log.charge(bucket, granted) end
  bucket.added = bucket.added or 0
  bucket.debt = math.min(MAX_DEBT, bucket.debt + permits - granted)
end

-- Returns the time to live of a bucket.
local function time_to_live(bucket)
  local limiter = bucket.limiter
  if bucket.debt == 0 then return limiter.keep end
  return text(limiter.keep + math.min(MAX_WAIT, (math.ceil(bucket.debt / limiter.rate) + 1) * limiter.mean))
end

-- Writes a whole bucket from its newest entry and the entries before it.
local function write(bucket, entries, held, date, stored)
  local longest, skipped = bucket.longest, 0
  if bucket.debt > 0 then
    entries, skipped = to_bytes(ENTRY, longest, bucket.longest_until) .. to_bytes(ENTRY, bucket.debt, 0) .. entries, 2
  elseif longest > 0 and bucket.longest_until ~= date + REMEMBERED * longest then
    entries, skipped = to_bytes(ENTRY, longest, bucket.longest_until) .. entries, 1
  end
  local bytes = to_bytes(ENDING, held, date, stored, longest, skipped, FORMAT + skipped, #entries / BYTES + 1)
  call('SET', bucket.key, entries .. bytes, 'KEEPTTL')
end

-- Writes the charged permits and drops entries that no rule counts any more. Entries dated in the future are merged
-- into the new entry.
function log.save(bucket)
  local limiter, held, from, to = bucket.limiter, bucket.added, bucket.skipped, bucket.count
  local present, joins, stored = limiter.present, limiter.joins, bucket.stored + held
  -- If nothing was charged, the newest entry stays, unless it is dated in the future.
  if held == 0 then
    present = math.min(bucket.date, present)
    joins = present
  end
  while from < to do
    local permits, date = entry(bucket, from)
    if date > limiter.forget and permits > 0 then break end
    stored, from = stored - permits, from + 1
  end
  while from < to do
    local permits, date = entry(bucket, to - 1)
    if date < joins then break end
    held, to, joins = held + permits, to - 1, present
  end
  bucket.longest, bucket.longest_until = limiter.longest, limiter.longest_until
  local is_usual = limiter.longest == 0 or limiter.longest_until == present + REMEMBERED * limiter.longest
  is_usual = is_usual and bucket.debt == 0 and not bucket.is_replaced
  if is_usual and bucket.count > 0 and to + 1 >= bucket.count and 2 * from <= to then
    call('SETRANGE', bucket.key, to * BYTES, to_bytes(ENDING, held, present, stored, limiter.longest, from, FORMAT, to + 1))
  else
    write(bucket, string.sub(bucket.text, from * BYTES + 1, to * BYTES), held, present, stored)
  end
  if bucket.used > 0 then call('PEXPIRE', bucket.key, time_to_live(bucket)) end
end

-- Runs after a refusal. Writes nothing, unless the clock went back, the sums were wrong, or rules with a shorter
-- interval would soon drop entries that this rule counts. The last case writes at most once per interval.
function log.on_refusal(bucket)
  local limiter = bucket.limiter
  local longest, longest_until = limiter.longest, limiter.longest_until
  local remembers = longest <= bucket.longest and longest_until - bucket.longest_until <= longest
  if bucket.count == 0 or remembers and not bucket.wrong and bucket.date <= limiter.present then return end
  bucket.added = 0
  log.save(bucket)
end

-- Removes permits from an entry dated `from` to `to`; prefers an entry with exactly as many permits to one with more.
-- Does nothing if there is no such entry. The only entry stays as an entry without permits.
function log.remove_permits(bucket, permits, from, to)
  local found, found_held, found_date
  for number = bucket.skipped, bucket.count - 1 do
    local held, date = entry(bucket, number)
    if from <= date and date <= to and (held == permits or held > permits and not found) then
      found, found_held, found_date = number, held, date
      if held == permits then break end
    end
  end
  if not found then return end
  local is_left = found_held > permits or bucket.count - bucket.skipped == 1
  local left = is_left and to_bytes(ENTRY, found_held - permits, found_date) or ''
  local before = string.sub(bucket.text, bucket.skipped * BYTES + 1, found * BYTES)
  local entries = before .. left .. string.sub(bucket.text, (found + 1) * BYTES + 1, bucket.count * BYTES)
  local held, date = from_bytes(ENTRY, entries, #entries - BYTES + 1)
  local stored = math.max(0, bucket.stored - permits)
  if bucket.is_replaced and bucket.debt > 0 then
    -- The permits pay debt now. While there is debt, all entries are in use.
    bucket.text, bucket.skipped, bucket.count, bucket.stored = entries, 0, #entries / BYTES, stored
    bucket.held, bucket.date, bucket.used = held, date, bucket.used - permits
    local paid = math.min(bucket.debt, math.max(0, bucket.limiter.rate - bucket.used))
    bucket.debt = bucket.debt - paid
    if paid > 0 then
      log.charge(bucket, paid)
      return log.save(bucket)
    end
  end
  write(bucket, string.sub(entries, 1, -BYTES - 1), held, date, stored)
end

-- Returns the functions of an algorithm that stores a log; the algorithm adds limiter() and give_back().
function log.algorithm(arguments)
  return {
    keys = 1, args = arguments, open = log.open, check = log.check, status = log.status, charge = log.charge,
    charge_unconditionally = log.charge_unconditionally, debt_wait = log.debt_wait, save = log.save,
    on_refusal = log.on_refusal,
  }
end

-- Fractions are the stored form of a bucket of gcra and leaky_bucket, whose permits return continuously: one string,
-- big-endian, with these fields:
--   format (1 byte, 1), a time (6, ms), the permits in use at that time (6), parts of a permit in use (5), the number
--   of parts that make a permit (5): this is `interval`, so that `rate` parts return in a millisecond
-- A bucket has `date`, the stored time, if it exists, and `used` and `parts`, which are in use now. All numbers are
-- integers below 2^53, which a double represents exactly: a rate is never multiplied by an interval. In gcra_warm_up it
-- also has `heat`, in parts, which is stored after the other fields: whole permits (6) and parts (5); `text` is the
-- stored string.
local fractions = {}

local FRACTIONS, FRACTIONS_BYTES = '>BI6I6I5I5', 23

-- Returns floor(a * b / divisor) and the remainder, for a < 2^48 and b and divisor < 2^36. This is a long division by
-- 16-bit digits, since the product may exceed 2^53. A quotient of 2^53 or more is not exact.
function fractions.multiply_divide(a, b, divisor)
  local quotient, rest, unit = 0, 0, 4294967296
  while unit >= 1 do
    local part = rest * 65536 + math.floor(a / unit) % 65536 * b
    rest = part % divisor
    quotient, unit = quotient * 65536 + (part - rest) / divisor, unit / 65536
  end
  return quotient, rest
end

-- Subtracts permits and parts from those in use, down to zero.
function fractions.lower(bucket, permits, parts)
  local left, interval = bucket.parts - parts, bucket.limiter.interval
  bucket.parts = left % interval
  bucket.used = bucket.used - permits + math.floor(left / interval)
  if bucket.used < 0 then bucket.used, bucket.parts = 0, 0 end
end

-- Returns the permits and parts that return in `millis` milliseconds.
function fractions.returned(limiter, millis)
  return fractions.multiply_divide(math.min(math.max(0, millis), 2 ^ 48 - 1), limiter.rate, limiter.interval)
end

-- Returns the milliseconds until `permits` and the parts in use have returned.
function fractions.millis_for(bucket, permits)
  local limiter = bucket.limiter
  local millis, rest = fractions.multiply_divide(permits, limiter.interval, limiter.rate)
  return math.min(millis + math.ceil((rest + bucket.parts) / limiter.rate), MAX_WAIT)
end

-- Reads a bucket and computes its permits in use at `now`. `more` bytes follow the fractions. An invalid value counts
-- as a missing one.
function fractions.open(limiter, key, now, more)
  local bucket = { key = KEYS[key], limiter = limiter, date = nil, used = 0, parts = 0, added = nil, heat = nil, text = nil }
  local value = try('GET', bucket.key)
  if type(value) ~= 'string' or #value ~= FRACTIONS_BYTES + (more or 0) or string.byte(value) ~= 1 then return bucket end
  local _, date, used, parts, interval = from_bytes(FRACTIONS, value)
  if parts >= interval then return bucket end
  local whole, rest = fractions.multiply_divide(parts, limiter.interval, interval)
  bucket.date, bucket.used, bucket.parts, bucket.text = date, used, whole + (rest > 0 and 1 or 0), more and value
  fractions.lower(bucket, fractions.returned(limiter, now - date))
  return bucket
end

-- Charges permits that check() granted.
function fractions.charge(bucket, permits)
  bucket.used, bucket.added = bucket.used + permits, true
end

-- Returns the number of these permits that can be in use in addition, so that their sum stays bounded.
function fractions.chargeable(bucket, permits)
  local limiter = bucket.limiter
  return math.max(0, math.min(permits, (limiter.burst or limiter.rate) + MAX_DEBT - bucket.used))
end

-- Charges permits in any case.
function fractions.charge_unconditionally(bucket, permits)
  fractions.charge(bucket, fractions.chargeable(bucket, permits))
end

-- Returns the time until at most `burst` permits are in use.
function fractions.debt_wait(bucket)
  local over = bucket.used - bucket.limiter.burst
  if over < 0 or over == 0 and bucket.parts == 0 then return 0 end
  return fractions.millis_for(bucket, over)
end

-- Returns the time to live of a bucket: until it is full and without heat, plus one second.
local function keep(bucket)
  local heat = bucket.heat and math.ceil(bucket.heat / bucket.limiter.interval) or 0
  return fractions.millis_for(bucket, bucket.used + heat) + 1000
end

-- Writes the permits and parts in use, and the heat if there is one.
function fractions.save(bucket)
  local limiter = bucket.limiter
  local value = to_bytes(FRACTIONS, 1, limiter.now, bucket.used, bucket.parts, limiter.interval)
  if bucket.heat then
    value = value .. to_bytes('>I6I5', math.floor(bucket.heat / limiter.interval), bucket.heat % limiter.interval)
  end
  call('SET', bucket.key, value, 'PX', text(keep(bucket)))
end

-- Runs after a refusal. Writes nothing, unless the clock went back. If the rule has become slower, extends the time to
-- live until the bucket is full by the new rule.
function fractions.on_refusal(bucket)
  if not bucket.date then return end
  if bucket.date > bucket.limiter.now then return fractions.save(bucket) end
  local keep = keep(bucket)
  if call('PTTL', bucket.key) < keep - 1000 then call('PEXPIRE', bucket.key, text(keep)) end
end
