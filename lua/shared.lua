-- shared: what several algorithms stand on: the time, logs of grants, and fractions of a permit.
--
-- KEYS  none of its own
-- ARGV  none of its own
-- Returns nothing: it stands before all others.
--
-- Invariant: it keeps nothing from one call to the next.

local to_bytes, from_bytes = struct.pack, struct.unpack

-- A whole number as text, without an exponent.
local function text(number)
  return string.format('%.0f', number)
end

-- The moment to decide at, in milliseconds: as it is told, or the server's own. Read once for each call.
local function present(told)
  if told ~= '' then return tonumber(told) end
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- A log: what token_bucket and the windows keep of a bucket, as one string, big-endian. It begins with a header:
--   format (1 byte), permits of all entries (6), by which interval it was charged last (5, ms), the newest entry: a moment
--   (6, ms) and permits (5); in format 2 also a longer interval that others judge by (5) and until when that is remembered
--   (6, ms), and where the first of the other entries begins (3) and the last ends (3)
-- The other entries follow, 11 bytes each, oldest first. Up to CHUNK bytes are read and written whole. A longer log is
-- changed in place: it is read in chunks, an entry is added at its end, its first ones are skipped by the header, and it is
-- written anew when more than half of it is skipped. A bucket has these fields of the header, and besides:
--   first, oldest  where the first entry begins that has not returned, and its moment
--   used           the permits of all entries that have not returned, those that are added included
--   counted, wrong  whether all entries were counted, and whether the header had said something else
--   added, joined  permits that this call adds in one entry; the moment of the newest entry, if they join it
-- Its limiter says:
--   rate, now      what it allows, and the moment to decide at
--   present        the date of what is granted now; what is dated later counts as this
--   expired        what is dated then or before has returned
--   interval       how long after its date an entry returns; or `returns_at`, when all of them do
--   joins          the newest entry is joined if it is dated then or later
--   forget, keep   what is dated `forget` or before is dropped; how long the bucket lives (ms)
local log = {}

local NARROW, NARROW_BYTES, WIDE, WIDE_BYTES = '>BI6I5I6I5', 23, '>BI6I5I6I5I5I6I3I3', 40
local ENTRY, PERMITS, BYTES = '>I6I5', '>I5', 11
local CHUNK = 512
-- In one of so many milliseconds all entries of a longer log are counted before it refuses.
local SELDOM = 64
-- The most bytes that entries take: more than there are in any bucket of ours.
local MOST = 64 * CHUNK

-- The entry that begins there.
local function entry_at(bucket, at)
  local offset = at - (bucket.chunk_at or 0)
  if offset < 0 or offset + BYTES > #bucket.chunk then
    bucket.chunk, bucket.chunk_at, offset = redis.call('GETRANGE', bucket.key, at, at + CHUNK - 1), at, 0
  end
  return from_bytes(ENTRY, bucket.chunk, offset + 1)
end

-- The entries from one byte to another.
local function entries_of(bucket, from, to)
  local at = bucket.chunk_at or 0
  if from >= to then return '' end
  if from >= at and to <= at + #bucket.chunk then return string.sub(bucket.chunk, from - at + 1, to - at) end
  return redis.call('GETRANGE', bucket.key, from, to - 1)
end

-- Counts all entries, since a header may be damaged. Had it said something else?
local function recount(bucket)
  local from, first, used = bucket.from, bucket.first, bucket.added or 0
  local entries, stored = entries_of(bucket, from, bucket.to), bucket.held
  if bucket.date > bucket.limiter.expired then used = used + stored end
  for at = 1, #entries, BYTES do
    local permits = from_bytes(PERMITS, entries, at + 6)
    stored = stored + permits
    if from + at > first then used = used + permits end
  end
  bucket.counted, bucket.wrong = true, stored ~= bucket.stored or used ~= bucket.used
  bucket.stored, bucket.used = stored, used
  return bucket.wrong
end

-- Are the entries where the header says?
local function is_whole(key, length, first, from, to)
  local bytes = to - from
  if from < first or bytes < 0 or bytes > MOST or bytes % BYTES ~= 0 then return false end
  return to <= length or (length == CHUNK and to <= redis.call('STRLEN', key))
end

-- What the header says. A key of another type or format is none of ours, and as good as none; so is a string that was cut.
local function header_of(key, chunk)
  local length = type(chunk) == 'string' and #chunk or 0
  local format = length >= NARROW_BYTES and string.byte(chunk)
  if format == 1 and is_whole(key, length, NARROW_BYTES, NARROW_BYTES, length) then
    local _, stored, last, date, held = from_bytes(NARROW, chunk)
    return stored, last, date, held, 0, 0, NARROW_BYTES, length
  elseif format == 2 and length >= WIDE_BYTES then
    local _, stored, last, date, held, retain, retained_until, from, to = from_bytes(WIDE, chunk)
    if is_whole(key, length, WIDE_BYTES, from, to) then
      return stored, last, date, held, retain, retained_until, from, to
    end
  end
  return 0, nil, 0, 0, 0, 0, NARROW_BYTES, NARROW_BYTES
end

-- Reads a bucket.
function log.open(limiter, key)
  key = KEYS[key]
  local chunk, expired = redis.pcall('GETRANGE', key, '0', '511'), limiter.expired
  local stored, last, date, held, retain, retained_until, from, to = header_of(key, chunk)
  if stored == 0 then date, held, from, to = 0, 0, NARROW_BYTES, NARROW_BYTES end
  local bucket = {
    key = key, limiter = limiter, chunk = chunk, stored = stored, last = last, date = date, held = held, retain = retain,
    retained_until = retained_until, from = from, to = to, first = to, oldest = nil, used = 0, added = nil, joined = nil,
  }
  if stored == 0 or date <= expired then return bucket end
  local used, oldest, permits = stored, date, nil
  while from < to do
    oldest, permits = entry_at(bucket, from)
    if oldest > expired then break end
    from, used, oldest = from + BYTES, used - permits, date
  end
  bucket.first, bucket.oldest, bucket.used = from, oldest, used
  if used < held then recount(bucket) end
  return bucket
end

-- Milliseconds until what is dated so returns.
local function returns_in(limiter, date)
  return (limiter.returns_at or math.min(date, limiter.present) + limiter.interval) - limiter.now
end

-- The date of the entry with which so many permits have returned, oldest first.
local function date_of(bucket, permits)
  for at = bucket.first, bucket.to - BYTES, BYTES do
    local date, held = entry_at(bucket, at)
    permits = permits - held
    if permits <= 0 then return date end
  end
  local date = bucket.date
  return date > bucket.limiter.expired and permits <= bucket.held and date or bucket.limiter.present
end

-- Judges a request; writes nothing.
function log.check(bucket, permits)
  local limiter = bucket.limiter
  local over = bucket.used + permits - limiter.rate
  if over <= 0 or permits == 0 then return true, 0 end
  if permits > limiter.rate then return false, -1 end
  local trusted = bucket.counted or (bucket.to > CHUNK and limiter.now % SELDOM > 0)
  if not trusted and recount(bucket) then return log.check(bucket, permits) end
  return false, math.max(1, returns_in(limiter, date_of(bucket, over)))
end

-- What is left, and when there will be more.
function log.tell(bucket)
  local limiter, used = bucket.limiter, bucket.used
  local remaining = limiter.rate - used
  return remaining > 0 and remaining or 0, used > 0 and returns_in(limiter, bucket.oldest) or 0
end

-- Takes permits that check() granted.
function log.charge(bucket, permits, joins)
  if not bucket.added then
    local present, date = bucket.limiter.present, bucket.date
    bucket.added = 0
    if date >= (joins or bucket.limiter.joins) then bucket.joined, bucket.date = date, present end
    if bucket.used == 0 or (bucket.joined and bucket.first >= bucket.to) then bucket.oldest = present end
  end
  bucket.added, bucket.used = bucket.added + permits, bucket.used + permits
end

-- Writes a bucket whole: its newest entry, and the others. `...` says how long it lives, as SET takes it.
local function write_whole(bucket, stored, date, held, entries, ...)
  local header
  if bucket.retain == 0 and NARROW_BYTES + #entries <= CHUNK then
    header = to_bytes(NARROW, 1, stored, bucket.last, date, held)
  else
    header = to_bytes(WIDE, 2, stored, bucket.last, date, held, bucket.retain, bucket.retained_until, WIDE_BYTES,
      WIDE_BYTES + #entries)
  end
  redis.call('SET', bucket.key, header .. entries, ...)
end

-- Writes what was charged. With it, all entries that are dated ahead become one.
function log.save(bucket, forget, keep)
  local limiter, stored, from, to = bucket.limiter, bucket.used, bucket.first, bucket.to
  local date, held, joined, tail = limiter.present, bucket.added, bucket.joined, ''
  if forget < limiter.expired then
    stored, from = bucket.stored + held, bucket.from
    while from < to do
      local at, permits = entry_at(bucket, from)
      if at > forget then break end
      stored, from = stored - permits, from + BYTES
    end
  end
  if joined then
    held = held + bucket.held
    while joined > date and from < to do
      local at, permits = entry_at(bucket, to - BYTES)
      if at < date then break end
      held, to = held + permits, to - BYTES
    end
  elseif bucket.date > forget then
    tail = to_bytes(ENTRY, bucket.date, bucket.held)
  else
    stored = held
  end
  if to <= CHUNK or from - WIDE_BYTES > to - from then
    return write_whole(bucket, stored, date, held, entries_of(bucket, from, to) .. tail, 'PX', keep)
  end
  if tail ~= '' then redis.call('SETRANGE', bucket.key, to, tail) end
  redis.call('SETRANGE', bucket.key, '0', to_bytes(WIDE, 2, stored, bucket.last, date, held, bucket.retain,
    bucket.retained_until, from, to + #tail))
  redis.call('PEXPIRE', bucket.key, keep)
end

-- Writes what of a bucket's header is not about entries; it lives for so many milliseconds.
function log.write_header(bucket, keep)
  local entries = entries_of(bucket, bucket.from, bucket.to)
  write_whole(bucket, bucket.stored, bucket.date, bucket.held, entries, 'PX', keep)
end

-- Takes permits out of an entry that has not returned and is dated `first` to `last`: of one that holds just as many before
-- one that holds more. There may be none. A bucket without entries keeps its header, with a newest entry of no permits.
function log.take_out(bucket, permits, first, last)
  if bucket.used == 0 or permits == 0 then return end
  local entries = entries_of(bucket, bucket.from, bucket.to) .. to_bytes(ENTRY, bucket.date, bucket.held)
  local found, found_date, found_held
  for at = bucket.first - bucket.from + 1, #entries, BYTES do
    local date, held = from_bytes(ENTRY, entries, at)
    if first <= date and date <= last and (held == permits or (held > permits and not found)) then
      found, found_date, found_held = at, date, held
      if held == permits then break end
    end
  end
  if not found then return end
  local left = found_held > permits and to_bytes(ENTRY, found_date, found_held - permits) or ''
  entries = string.sub(entries, 1, found - 1) .. left .. string.sub(entries, found + BYTES)
  local date, held = found_date, 0
  if entries ~= '' then date, held = from_bytes(ENTRY, entries, #entries - BYTES + 1) end
  write_whole(bucket, bucket.stored - permits, date, held, string.sub(entries, 1, -BYTES - 1), 'KEEPTTL')
end

-- An algorithm of windows: their limiters say all of the above.
function log.windows(arguments)
  local windows = { keys = 1, args = arguments, open = log.open, check = log.check, tell = log.tell }

  function windows.charge(bucket, permits)
    if permits > 0 then log.charge(bucket, permits) end
  end

  function windows.save(bucket)
    bucket.last = 0
    log.save(bucket, bucket.limiter.forget, bucket.limiter.keep)
  end

  -- After a refusal: writes nothing, unless windows end after the present one, or the header was wrong.
  function windows.settle(bucket)
    if bucket.date > bucket.limiter.present then
      log.charge(bucket, 0)
      windows.save(bucket)
    elseif bucket.wrong then
      log.write_header(bucket, bucket.limiter.keep)
    end
  end

  -- Takes permits out of the window that ends at a moment, as if they had never been granted.
  function windows.take_out(limiter, key, permits, ends)
    limiter.expired = -1
    log.take_out(log.open(limiter, key), permits, ends, ends)
  end

  return windows
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
  local value = redis.pcall('GET', bucket.key)
  if type(value) ~= 'string' or #value ~= FRACTIONS_BYTES or string.byte(value) ~= 1 then return bucket end
  local _, at, used, parts, interval = from_bytes(FRACTIONS, value)
  if parts >= interval then return bucket end
  local whole, rest = fractions.multiply_divide(parts, limiter.interval, interval)
  bucket.at, bucket.used, bucket.parts = at, used, whole + (rest > 0 and 1 or 0)
  fractions.lower(bucket, fractions.returned(limiter, now - at))
  return bucket
end

-- Takes permits that check() granted.
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
  redis.call('SET', bucket.key, value, 'PX', text(keep(bucket)))
end

-- After a refusal: writes nothing, unless the clock went back. A rule that has become slower keeps the bucket until it is
-- full by that rule.
function fractions.settle(bucket)
  if not bucket.at then return end
  if bucket.at > bucket.limiter.now then return fractions.save(bucket) end
  local keep = keep(bucket)
  if redis.call('PTTL', bucket.key) < keep - 1000 then redis.call('PEXPIRE', bucket.key, text(keep)) end
end
