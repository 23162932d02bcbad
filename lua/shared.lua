-- shared: helpers of several algorithms: the time, logs of grants, and fractions of a permit.
--
-- KEYS  none of its own
-- ARGV  none of its own
-- Returns nothing; the other files follow it.
--
-- Invariant: no state is kept between calls.

local call, try, to_bytes, from_bytes, byte = redis.call, redis.pcall, struct.pack, struct.unpack, string.byte

-- A whole number as text, without an exponent.
local function text(number)
  return string.format('%.0f', number)
end

-- The time to decide at, in milliseconds: the given one, or the server's. Read once for each call.
local function present(told)
  if told ~= '' then return tonumber(told) end
  local time = call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- A log: what token_bucket and the windows keep of a bucket, as one string, big-endian: entries, oldest first, each with its
-- permits (5 bytes) and its date (6, ms), and behind them the permits of all entries (5), by which interval it was charged
-- last (5, ms), how many entries are skipped (2), the format (1), and how many entries there are, skipped ones too (4). So one
-- write at the end adds an entry and tells all that has changed. When more than half of them are skipped, or the string would
-- become shorter, it is written anew. In format 4, the first of those skipped is none, but tells a longer interval that others
-- judge by, and until when that is remembered. A bucket has these fields:
--   chunk, chunk_at                     a part of the string, and where that begins
--   stored, last, skipped, count        as above
--   retain, retained_until              the longer interval, if there is one
--   held, date                          the newest entry
--   first, oldest, used                 the entry that returns next, by number; its date; the permits that have not returned
--   counted, wrong                      whether all entries were counted, and whether a refusal has something to set right
--   added, joined                       permits that this call adds in one entry; what the newest was dated, if it joins them
-- Its limiter has these:
--   rate, now, present, expired         what is dated `expired` or before has returned, what is dated after `present` counts
--                                       as granted then; a grant is dated `present`
--   interval, returns_at                when an entry returns: so long after its date, or all of them at one moment
--   forget                              what is dated then or before is dropped
--   last                                what a charged bucket says of its interval; 0 in windows
--   joins, lasts                        a newest entry dated then or later is joined, and, for grant(), has set a time to
--                                       live that suffices
--   keep                                the time to live (ms)
local log = {}

local ENTRY, BYTES = '>I5I6', 11
-- The bytes of the newest entry and of all behind it.
local ENDING, ENDING_BYTES = '>I5I6I5I5I2BI4', 28
-- What is read at once; the most entries of any bucket; in one of so many milliseconds all entries of a longer log are
-- counted before it refuses.
local CHUNK, MOST, SELDOM = 512, 2978, 64

-- Reads the entry of this number, from 0.
local function entry_at(bucket, number)
  local at = number * BYTES
  if at < bucket.chunk_at or at + BYTES > bucket.chunk_at + #bucket.chunk then
    bucket.chunk, bucket.chunk_at = call('GETRANGE', bucket.key, at, at + 511), at
  end
  return from_bytes(ENTRY, bucket.chunk, at - bucket.chunk_at + 1)
end

-- The entries from one number to before another.
local function entries_of(bucket, from, to)
  local first, last, at = from * BYTES, to * BYTES - 1, bucket.chunk_at
  if first > last then return '' end
  if first >= at and last < at + #bucket.chunk then return string.sub(bucket.chunk, first - at + 1, last - at + 1) end
  return call('GETRANGE', bucket.key, first, last)
end

-- Is the string as long as it says? One that was cut or damaged there is none of ours. So is a longer one than any of ours.
local function is_whole(key, chunk, format, skipped, count)
  local length = (count - 1) * BYTES + ENDING_BYTES
  if skipped >= count or skipped < format - 3 or count > MOST then return false end
  return length == #chunk or (#chunk == CHUNK and length == call('STRLEN', key))
end

-- Counts all entries, since the sums may be damaged. Returns whether they were wrong.
local function recount(bucket)
  local entries, used, stored = entries_of(bucket, bucket.skipped, bucket.count), bucket.added or 0, 0
  for number = bucket.skipped, bucket.count - 1 do
    local permits = from_bytes(ENTRY, entries, (number - bucket.skipped) * BYTES + 1)
    stored = stored + permits
    if number >= bucket.first then used = used + permits end
  end
  bucket.counted, bucket.wrong = true, stored ~= bucket.stored or used ~= bucket.used
  bucket.stored, bucket.used = stored, used
  return bucket.wrong
end

-- Reads a bucket, if `chunk` is not what was read of it. A key of another type or format is none of ours, and as good as none:
-- in former formats the fifth byte from the end was 0.
function log.open(limiter, key, _, chunk)
  chunk = chunk or try('GETRANGE', KEYS[key], '-512', '-1')
  local format = #chunk >= ENDING_BYTES and byte(chunk, -5)
  local held, date, stored, last, skipped, count = 0, 0, 0, nil, 0, 0
  if format == 3 or format == 4 then
    held, date, stored, last, skipped, format, count = from_bytes(ENDING, chunk, #chunk - ENDING_BYTES + 1)
    if not is_whole(KEYS[key], chunk, format, skipped, count) then
      format, held, stored, last, skipped, count = nil, 0, 0, nil, 0, 0
    end
    if stored == 0 then date, held = 0, 0 end
  end
  local bucket = {
    key = KEYS[key], limiter = limiter, chunk = chunk, chunk_at = (count - 1) * BYTES + ENDING_BYTES - #chunk, held = held,
    date = date, stored = stored, last = last, skipped = skipped, count = count, first = count, oldest = nil, used = 0,
    added = nil, joined = nil,
  }
  if format == 4 then bucket.retain, bucket.retained_until = entry_at(bucket, 0) end
  if date <= limiter.expired or stored == 0 then return bucket end
  bucket.used, bucket.oldest, bucket.first = stored, date, skipped
  while bucket.first < count - 1 do
    local permits, dated = entry_at(bucket, bucket.first)
    if dated > limiter.expired then bucket.oldest = dated break end
    bucket.first, bucket.used = bucket.first + 1, bucket.used - permits
  end
  if bucket.used < held then recount(bucket) end
  return bucket
end

-- Milliseconds until an entry of this date returns.
local function returns_in(limiter, date)
  return (limiter.returns_at or math.min(date, limiter.present) + limiter.interval) - limiter.now
end

-- The date of the entry with which so many permits have returned, oldest first.
local function date_of(bucket, permits)
  for number = bucket.first, bucket.count - 2 do
    local held, date = entry_at(bucket, number)
    permits = permits - held
    if permits <= 0 then return date end
  end
  local is_newest = bucket.date > bucket.limiter.expired and permits <= bucket.held
  return is_newest and bucket.date or bucket.limiter.present
end

-- Checks a request; writes nothing.
function log.check(bucket, permits)
  local limiter = bucket.limiter
  local over = bucket.used + permits - limiter.rate
  if over <= 0 or permits == 0 then return true, 0 end
  if permits > limiter.rate then return false, -1 end
  local trusted = bucket.counted or (bucket.count * BYTES > CHUNK and limiter.now % SELDOM > 0)
  if not trusted and recount(bucket) then return log.check(bucket, permits) end
  return false, math.max(1, returns_in(limiter, date_of(bucket, over)))
end

-- What is left, and when there will be more.
function log.tell(bucket)
  local limiter, used = bucket.limiter, bucket.used
  return math.max(0, limiter.rate - used), used > 0 and returns_in(limiter, bucket.oldest) or 0
end

-- Adds permits to the entry that this call makes.
local function add(bucket, permits)
  local present, date = bucket.limiter.present, bucket.date
  if not bucket.added then
    if date >= bucket.limiter.joins then bucket.joined, bucket.date = date, present end
    if bucket.used == 0 or bucket.joined and bucket.first >= bucket.count - 1 then bucket.oldest = present end
  end
  bucket.added, bucket.used = (bucket.added or 0) + permits, bucket.used + permits
end

-- Takes permits that check() granted.
function log.charge(bucket, permits)
  if permits > 0 then add(bucket, permits) end
end

-- Writes a bucket whole: the newest entry, and those before it. `...` says how long it lives, as SET takes it.
local function write_whole(bucket, entries, held, date, stored, ...)
  local retains = bucket.retain and 1 or 0
  if bucket.retain then entries = to_bytes(ENTRY, bucket.retain, bucket.retained_until) .. entries end
  local count = #entries / BYTES + 1
  call('SET', bucket.key, entries .. to_bytes(ENDING, held, date, stored, bucket.last, retains, 3 + retains, count), ...)
end

-- Writes what was added, and drops what is dated `forget` or before. All entries that are dated ahead become one.
local function write(bucket)
  local forget, keep = bucket.limiter.forget, bucket.limiter.keep
  local present, held, joined, from, to = bucket.limiter.present, bucket.added, bucket.joined, bucket.skipped, bucket.count
  local stored = bucket.stored + held
  if joined then
    held, to = held + bucket.held, to - 1
    while joined > present and to > from do
      local permits, date = entry_at(bucket, to - 1)
      if date < present then break end
      held, to = held + permits, to - 1
    end
  elseif bucket.date <= forget then
    stored, from, to = held, 0, 0
  end
  while from < to do
    local permits, date = entry_at(bucket, from)
    if date > forget then break end
    stored, from = stored - permits, from + 1
  end
  if bucket.count == 0 or to + 1 < bucket.count or 2 * from > to or bucket.retain then
    return write_whole(bucket, entries_of(bucket, from, to), held, present, stored, 'PX', keep)
  end
  call('SETRANGE', bucket.key, to * BYTES, to_bytes(ENDING, held, present, stored, bucket.last, from, 3, to + 1))
  call('PEXPIRE', bucket.key, keep)
end

-- Writes what was charged.
function log.save(bucket)
  bucket.last = bucket.limiter.last
  write(bucket)
end

-- After a refusal: writes nothing, unless the clock went back, or what is stored is wrong.
function log.settle(bucket)
  if bucket.date > bucket.limiter.present then
    add(bucket, 0)
    write(bucket)
  elseif bucket.wrong then
    local entries = entries_of(bucket, bucket.skipped, bucket.count - 1)
    write_whole(bucket, entries, bucket.held, bucket.date, bucket.stored, 'PX', bucket.limiter.keep)
  end
end

-- Grants a request at once, in the everyday case: there is room, the rule is that by which the bucket was charged last, the
-- clock has not gone back, and only the end is written. Returns what tell() says then; else nothing, and what was read.
function log.grant(limiter, key, permits)
  key = KEYS[key]
  local chunk, rate, present, expired = try('GETRANGE', key, '-512', '-1'), limiter.rate, limiter.present, limiter.expired
  if chunk == '' and permits <= rate then
    call('SET', key, to_bytes(ENDING, permits, present, permits, limiter.last, 0, 3, 1), 'PX', limiter.keep)
    return rate - permits, present + limiter.interval - limiter.now
  end
  if #chunk < ENDING_BYTES or byte(chunk, -5) ~= 3 then return nil, chunk end
  local held, date, used, last, first, _, count = from_bytes(ENDING, chunk, #chunk - ENDING_BYTES + 1)
  local newest, oldest, part, at = count - 1, date, chunk, #chunk - ENDING_BYTES + 1 - (count - 1) * BYTES
  if last ~= limiter.last or date > present then return nil, chunk end
  if (at ~= 1 or first >= count) and not is_whole(key, chunk, 3, first, count) then return nil, chunk end
  if used == 0 or date <= expired then used, date, oldest, first = 0, 0, present, count end
  while first < newest do
    local offset = at + first * BYTES
    if offset < 1 or offset + BYTES > #part + 1 then
      part, at, offset = call('GETRANGE', key, first * BYTES, first * BYTES + 87), 1 - first * BYTES, 1
    end
    local returned, dated = from_bytes(ENTRY, part, offset)
    if dated > expired then oldest = dated break end
    first, used = first + 1, used - returned
  end
  if used + permits > rate or (date > 0 and used < held) then return nil, chunk end
  used = used + permits
  if date >= limiter.joins then
    permits = permits + held
    if first == newest then oldest = present end
  else
    newest = count
  end
  if 2 * first <= newest then
    call('SETRANGE', key, newest * BYTES, to_bytes(ENDING, permits, present, used, last, first, 3, newest + 1))
    if date < limiter.lasts then call('PEXPIRE', key, limiter.keep) end
  elseif part == chunk then
    local entries = string.sub(chunk, at + first * BYTES, at + newest * BYTES - 1)
    local ending = to_bytes(ENDING, permits, present, used, last, 0, 3, newest - first + 1)
    call('SET', key, entries .. ending, 'PX', limiter.keep)
  else
    return nil, chunk
  end
  return rate - used, oldest + limiter.interval - limiter.now
end

-- Takes permits out of an entry that is dated `from` to `to`: of one that holds just as many before one that holds more.
-- There may be none. Of the only one, an entry of no permits is left.
function log.take_out(bucket, permits, from, to)
  if permits == 0 then return end
  local entries, found, found_held, found_date = entries_of(bucket, bucket.skipped, bucket.count), nil, nil, nil
  for at = 1, #entries, BYTES do
    local held, date = from_bytes(ENTRY, entries, at)
    if from <= date and date <= to and (held == permits or (held > permits and not found)) then
      found, found_held, found_date = at, held, date
      if held == permits then break end
    end
  end
  if not found then return end
  local is_left = found_held > permits or #entries == BYTES
  local left = is_left and to_bytes(ENTRY, found_held - permits, found_date) or ''
  entries = string.sub(entries, 1, found - 1) .. left .. string.sub(entries, found + BYTES)
  local held, date = from_bytes(ENTRY, entries, #entries - BYTES + 1)
  write_whole(bucket, string.sub(entries, 1, -BYTES - 1), held, date, math.max(0, bucket.stored - permits), 'KEEPTTL')
end

-- An algorithm that keeps a log; limiter() and give_back() are its own.
function log.algorithm(arguments)
  return {
    keys = 1, args = arguments, open = log.open, check = log.check, tell = log.tell, charge = log.charge, save = log.save,
    settle = log.settle,
  }
end

-- Fractions: what gcra and leaky_bucket keep of a bucket, whose permits return continuously: one string, big-endian.
--   format (1 byte, 1), a moment (6, ms), permits that were in use then (6), parts of a permit (5), how many parts make
--   a permit (5): `interval` of them, so that `rate` parts return in a millisecond
-- A bucket has `at`, that moment, if it is stored, and `used` and `parts`, which are in use now. Every number is a whole one
-- below 2^53, which a double holds exactly: no rate is ever multiplied with an interval.
local fractions = {}

local FRACTIONS, FRACTIONS_BYTES = '>BI6I6I5I5', 23

-- The longest wait that is told: a thousand years.
local MAX_WAIT = 1000 * 366 * 24 * 60 * 60 * 1000

-- floor(a * b / divisor), and the remainder, for a < 2^48 and b and divisor < 2^36: the product is never made, but
-- divided digit by digit of 16 bits. A quotient that reaches 2^53 is not exact.
function fractions.multiply_divide(a, b, divisor)
  local quotient, rest, unit = 0, 0, 4294967296
  while unit >= 1 do
    local part = rest * 65536 + math.floor(a / unit) % 65536 * b
    rest = part % divisor
    quotient, unit = quotient * 65536 + (part - rest) / divisor, unit / 65536
  end
  return quotient, rest
end

-- Takes permits and parts out of what is in use; what is not in use cannot be taken.
function fractions.lower(bucket, permits, parts)
  local left, interval = bucket.parts - parts, bucket.limiter.interval
  bucket.parts = left % interval
  bucket.used = bucket.used - permits + math.floor(left / interval)
  if bucket.used < 0 then bucket.used, bucket.parts = 0, 0 end
end

-- The permits and parts that return in so many milliseconds.
function fractions.returned(limiter, millis)
  return fractions.multiply_divide(math.min(math.max(0, millis), 2 ^ 48 - 1), limiter.rate, limiter.interval)
end

-- Milliseconds until so many permits and the parts in use have returned.
function fractions.millis_for(bucket, permits)
  local limiter = bucket.limiter
  local millis, rest = fractions.multiply_divide(permits, limiter.interval, limiter.rate)
  return math.min(millis + math.ceil((rest + bucket.parts) / limiter.rate), MAX_WAIT)
end

-- Reads what is in use at a moment; a value that is not ours is none.
function fractions.open(limiter, key, now)
  local bucket = { key = KEYS[key], limiter = limiter, at = nil, used = 0, parts = 0, added = nil }
  local value = try('GET', bucket.key)
  if type(value) ~= 'string' or #value ~= FRACTIONS_BYTES or string.byte(value) ~= 1 then return bucket end
  local _, at, used, parts, interval = from_bytes(FRACTIONS, value)
  if parts >= interval then return bucket end
  local whole, rest = fractions.multiply_divide(parts, limiter.interval, interval)
  bucket.at, bucket.used, bucket.parts = at, used, whole + (rest > 0 and 1 or 0)
  fractions.lower(bucket, fractions.returned(limiter, now - at))
  return bucket
end

-- Charges permits that check() granted.
function fractions.charge(bucket, permits)
  if permits > 0 then bucket.used, bucket.added = bucket.used + permits, true end
end

-- How long a bucket is kept: until it is full, and a second longer.
local function keep(bucket)
  return fractions.millis_for(bucket, bucket.used) + 1000
end

-- Writes what is in use.
function fractions.save(bucket)
  local limiter = bucket.limiter
  local value = to_bytes(FRACTIONS, 1, limiter.now, bucket.used, bucket.parts, limiter.interval)
  call('SET', bucket.key, value, 'PX', text(keep(bucket)))
end

-- After a refusal: writes nothing, unless the clock went back. A rule that has become slower keeps the bucket until it is
-- full by that rule.
function fractions.settle(bucket)
  if not bucket.at then return end
  if bucket.at > bucket.limiter.now then return fractions.save(bucket) end
  local keep = keep(bucket)
  if call('PTTL', bucket.key) < keep - 1000 then call('PEXPIRE', bucket.key, text(keep)) end
end
