-- shared: what several algorithms stand on: the time, numbers as text, logs of grants, and fractions of a permit.
--
-- KEYS  none of its own
-- ARGV  none of its own
-- Returns nothing: it stands before all others.
--
-- Invariant: it keeps nothing from one call to the next.

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
-- The other entries follow, 11 bytes each, oldest first. A short log is read and written whole. A long one is changed in
-- place: read in chunks, where it is needed; one entry is added at its end, its first ones are skipped by the header, and
-- it is written anew when more than half of it is skipped. In a bucket all that is a field, and besides:
--   first    where the first entry begins that has not returned
--   oldest   its moment; nil if there is none
--   used     the permits of all entries that have not returned
--   pending  permits that this call adds in one entry, with those of the entries that it joins; nil before
local log = {}

local NARROW, NARROW_BYTES, WIDE, WIDE_BYTES = '>BI6I5I6I5', 23, '>BI6I5I6I5I5I6I3I3', 40
local ENTRY, BYTES = '>I6I5', 11
local CHUNK = 512

-- Reads the header and the first chunk of a bucket. A key of another type or format is none of ours, and as good as none.
function log.open(key, now, limiter)
  local chunk = redis.pcall('GETRANGE', KEYS[key], '0', '511')
  local length, format = type(chunk) == 'string' and #chunk or 0, nil
  local stored, last, date, held, retain, retained_until, from, to = 0, nil, nil, 0, 0, 0, NARROW_BYTES, NARROW_BYTES
  if length >= NARROW_BYTES then format = string.byte(chunk) end
  if format == 1 then
    format, stored, last, date, held = struct.unpack(NARROW, chunk)
    to = length
  elseif format == 2 then
    format, stored, last, date, held, retain, retained_until, from, to = struct.unpack(WIDE, chunk)
  end
  return {
    key = KEYS[key], now = now, limiter = limiter, chunk = chunk, chunk_at = 0, stored = stored, last = last, date = date,
    held = held, retain = retain, retained_until = retained_until, from = from, to = to, used = 0, first = to,
    oldest = nil, pending = nil, append = nil,
  }
end

-- The entry that begins there.
local function entry_at(bucket, at)
  local offset = at - bucket.chunk_at
  if offset < 0 or offset + BYTES > #bucket.chunk then
    bucket.chunk, bucket.chunk_at, offset = redis.call('GETRANGE', bucket.key, at, at + CHUNK - 1), at, 0
  end
  return struct.unpack(ENTRY, bucket.chunk, offset + 1)
end

-- Finds out what has not returned; what is dated `expired` or before has.
function log.read(bucket, expired)
  local newest = bucket.date
  if not newest or newest <= expired or bucket.stored == 0 then return end
  local at, to, used, date, permits = bucket.from, bucket.to, bucket.stored, newest, nil
  while at < to do
    date, permits = entry_at(bucket, at)
    if date > expired then break end
    at, used, date = at + BYTES, used - permits, newest
  end
  bucket.first, bucket.used, bucket.oldest = at, used, date
end

-- The moment of the entry with which so many permits have returned, oldest first; nil if that is what this call adds.
function log.date_of(bucket, permits)
  for at = bucket.first, bucket.to - BYTES, BYTES do
    local date, held = entry_at(bucket, at)
    permits = permits - held
    if permits <= 0 then return date end
  end
  if (not bucket.pending or bucket.append) and permits <= bucket.held then return bucket.date end
end

-- Begins the entry that this call adds: drops what is dated `forget` or before, and joins all that is dated after `ahead`,
-- or else the newest entry if it is dated `joins` or after.
function log.begin(bucket, forget, joins, ahead)
  local newest, pending = bucket.date, 0
  if not newest or newest <= forget then
    bucket.from, bucket.to, bucket.stored = NARROW_BYTES, NARROW_BYTES, 0
  else
    while bucket.from < bucket.first do
      local date, permits = entry_at(bucket, bucket.from)
      if date > forget then break end
      bucket.from, bucket.stored = bucket.from + BYTES, bucket.stored - permits
    end
    if newest > ahead or newest >= joins then
      pending = bucket.held
      while newest > ahead and bucket.to > bucket.from do
        local date, permits = entry_at(bucket, bucket.to - BYTES)
        if date <= ahead then break end
        bucket.to, pending = bucket.to - BYTES, pending + permits
      end
      if bucket.first >= bucket.to then bucket.oldest = nil end
    elseif bucket.held > 0 then
      bucket.append = struct.pack(ENTRY, newest, bucket.held)
    end
  end
  bucket.pending = pending
end

-- Takes permits that a check() granted; what begin() takes comes after them.
function log.charge(bucket, permits, forget, joins, ahead)
  if not bucket.pending then log.begin(bucket, forget, joins, ahead) end
  bucket.pending, bucket.stored = bucket.pending + permits, bucket.stored + permits
  bucket.used, bucket.added = bucket.used + permits, true
end

-- The other entries, as far as they stay.
local function entries_of(bucket)
  local from, to, at = bucket.from, bucket.to, bucket.chunk_at
  if from >= to then return '' end
  if from >= at and to <= at + #bucket.chunk then return string.sub(bucket.chunk, from - at + 1, to - at) end
  return redis.call('GETRANGE', bucket.key, from, to - 1)
end

-- Writes a bucket whole: its newest entry, and the others. `...` says how long it lives, as SET takes it.
local function write_whole(bucket, date, held, entries, ...)
  local header
  if bucket.retain == 0 and NARROW_BYTES + #entries <= CHUNK then
    header = struct.pack(NARROW, 1, bucket.stored, bucket.last, date, held)
  else
    header = struct.pack(WIDE, 2, bucket.stored, bucket.last, date, held, bucket.retain, bucket.retained_until,
      WIDE_BYTES, WIDE_BYTES + #entries)
  end
  redis.call('SET', bucket.key, header .. entries, ...)
end

-- Writes a bucket whose newest entry is what this call adds, dated `date`; it lives for so many milliseconds.
function log.write(bucket, date, keep)
  local append, to = bucket.append or '', bucket.to
  if to <= CHUNK or bucket.from - WIDE_BYTES > to - bucket.from then
    return write_whole(bucket, date, bucket.pending, entries_of(bucket) .. append, 'PX', keep)
  end
  if append ~= '' then redis.call('SETRANGE', bucket.key, to, append) end
  redis.call('SETRANGE', bucket.key, 0, struct.pack(WIDE, 2, bucket.stored, bucket.last, date, bucket.pending, bucket.retain,
    bucket.retained_until, bucket.from, to + #append))
  redis.call('PEXPIRE', bucket.key, keep)
end

-- Writes what of a bucket's header is not about entries; it lives for so many milliseconds.
function log.write_header(bucket, keep)
  write_whole(bucket, bucket.date, bucket.held, entries_of(bucket), 'PX', keep)
end

-- Takes permits out of a live entry that is dated `first` to `last`: of one that holds just as many before one that holds
-- more. There may be none. A bucket without entries keeps its header, with a newest entry of no permits.
function log.take_out(bucket, permits, first, last)
  if bucket.used == 0 or permits == 0 then return end
  local entries, found, found_date, found_held = entries_of(bucket) .. struct.pack(ENTRY, bucket.date, bucket.held), nil, nil, nil
  for at = bucket.first - bucket.from + 1, #entries, BYTES do
    local date, held = struct.unpack(ENTRY, entries, at)
    if first <= date and date <= last and (held == permits or (held > permits and not found)) then
      found, found_date, found_held = at, date, held
      if held == permits then break end
    end
  end
  if not found then return end
  bucket.stored = bucket.stored - permits
  local left = found_held > permits and struct.pack(ENTRY, found_date, found_held - permits) or ''
  entries = string.sub(entries, 1, found - 1) .. left .. string.sub(entries, found + BYTES)
  if entries == '' then return write_whole(bucket, found_date, 0, '', 'KEEPTTL') end
  local date, held = struct.unpack(ENTRY, entries, #entries - BYTES + 1)
  write_whole(bucket, date, held, string.sub(entries, 1, -BYTES - 1), 'KEEPTTL')
end

-- Fractions: permits that return continuously. A bucket that has them has these fields:
--   rate, interval  so many permits return in so many milliseconds
--   used, parts     so many permits are in use, and so many parts of which `interval` make a permit
-- Every number is a whole one below 2^53, which a double holds exactly: no rate is ever multiplied with an interval.
local fractions = {}

-- The longest wait that is told: a thousand years.
local MAX_WAIT = 1000 * 366 * 24 * 60 * 60 * 1000

-- floor(a * b / divisor), and the remainder, for a < 2^48 and b and divisor < 2^36: the product is never made, but
-- divided digit by digit of 16 bits. A quotient that reaches 2^53 is not exact.
function fractions.multiply_divide(a, b, divisor)
  local quotient, rest = 0, 0
  for _, unit in ipairs({ 4294967296, 65536, 1 }) do
    local digit = math.floor(a / unit) % 65536
    local part = rest * 65536 + digit * b
    quotient = quotient * 65536 + math.floor(part / divisor)
    rest = part % divisor
  end
  return quotient, rest
end

-- Takes permits and parts out of what is in use; what is not in use cannot be taken.
function fractions.lower(bucket, permits, parts)
  local left = bucket.parts - parts
  bucket.parts = left % bucket.interval
  bucket.used = bucket.used - permits + math.floor(left / bucket.interval)
  if bucket.used < 0 then bucket.used, bucket.parts = 0, 0 end
end

-- The permits and parts that return in so many milliseconds.
function fractions.returned(bucket, millis)
  return fractions.multiply_divide(math.min(math.max(0, millis), 2 ^ 48 - 1), bucket.rate, bucket.interval)
end

-- Milliseconds until so many permits and the parts in use have returned.
function fractions.millis_for(bucket, permits)
  local millis, rest = fractions.multiply_divide(permits, bucket.interval, bucket.rate)
  return math.min(millis + math.ceil((rest + bucket.parts) / bucket.rate), MAX_WAIT)
end

local FRACTIONS, FRACTIONS_BYTES = '>BI6I6I5I5', 23

-- Reads what was in use at a moment, and what of it is now; a value that is not ours is none.
function fractions.open(limiter, key, now)
  local bucket = { key = KEYS[key], now = now, used = 0, parts = 0, rate = limiter.rate, interval = limiter.interval }
  local value = redis.pcall('GET', bucket.key)
  if type(value) ~= 'string' or #value ~= FRACTIONS_BYTES or string.byte(value) ~= 1 then return bucket end
  local _, at, used, parts, interval = struct.unpack(FRACTIONS, value)
  local whole, rest = fractions.multiply_divide(parts, bucket.interval, interval)
  bucket.at, bucket.used, bucket.parts = at, used, whole + (rest > 0 and 1 or 0)
  fractions.lower(bucket, fractions.returned(bucket, now - at))
  return bucket
end

-- How long a bucket is kept: until it is full, and a second longer.
local function keep(bucket)
  return fractions.millis_for(bucket, bucket.used) + 1000
end

-- Writes what is in use.
function fractions.save(bucket)
  local value = struct.pack(FRACTIONS, 1, bucket.now, bucket.used, bucket.parts, bucket.interval)
  redis.call('SET', bucket.key, value, 'PX', text(keep(bucket)))
end

-- After a refusal: writes nothing, unless the clock went back. A rule that has become slower keeps the bucket until it is
-- full by that rule.
function fractions.settle(bucket)
  if not bucket.at then return end
  if bucket.at > bucket.now then return fractions.save(bucket) end
  local keep = keep(bucket)
  if redis.call('PTTL', bucket.key) < keep - 1000 then redis.call('PEXPIRE', bucket.key, text(keep)) end
end
