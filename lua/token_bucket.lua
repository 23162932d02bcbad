-- token_bucket: a permit comes back exactly one interval after it was granted. The translation of
-- src/limit/token_bucket.rs, where the law is told; a property test holds the two equal.
--
-- KEYS  hash     Redisson's configuration of the limiter: rate, interval, keepAliveTime, type; and while rules with
--                different intervals are in force, ours: retain, retainUntil (ms)
--       value    Redisson's counter: rate less the permits of all stored entries
--       permits  Redisson's log, a sorted set: score = when granted (ms), member = 0x10, 16 bytes, permits (u32 LE)
-- ARGV  type (0 OVERALL, 1 PER_CLIENT), permits asked for, rate, interval (ms)
--
-- Invariant: the log is the truth and the counter its cache. Of the 16 bytes that Redisson fills at random, ours are a
-- seal and 8 random ones. The seal is what the writer knew: the permits in all stored entries, this one included, and
-- its rate. While the counter is what the newest entry's seal says, nobody else has touched the bucket and the sum is
-- known without reading the log; else the log is summed, which heals whatever was done to the counter. Big-endian, the
-- seal sorts the entries of one millisecond in the order in which they were written.

local token_bucket = { keys = 3, args = 4 }

-- Above this many permits, grants of the same slot share an entry.
local MAX_ENTRIES = 512
-- How many intervals a longer one of another rule is retained for at most.
local MOST_RETAINED = 64

local function text(number)
  return string.format('%.0f', number)
end

-- Permits of an entry in any format that Redisson has had: a length, so many bytes and the permits (today of 21 bytes,
-- once of 13); before 3.17 the length had 8 bytes (20 in all), and before 3.16.4 there was a float instead (8 in all).
-- The permits have always been the last four.
local function permits_of(member)
  if #member < 4 then return 0 end
  local permits = struct.unpack('<I4', member, #member - 3)
  return permits
end

local function pack(bucket, random, permits)
  local bytes = random
  if #random == 8 then bytes = struct.pack('>I4I4', bucket.stored, bucket.rate) .. random end
  return struct.pack('<Bc0I4', #bytes, bytes, permits)
end

-- The entry with other permits, in the format that it has.
local function with_permits(member, permits)
  return string.sub(member, 1, -5) .. struct.pack('<I4', permits)
end

local function sum(entries)
  local permits = 0
  for _, member in ipairs(entries) do permits = permits + permits_of(member) end
  return permits
end

-- The permits of all stored entries, from the seal of the newest if the counter bears it out.
local function stored(bucket)
  if not bucket.newest then return 0 end
  local counter = tonumber(redis.call('GET', bucket.value))
  if #bucket.newest == 21 then
    local used, rate = struct.unpack('>I4I4', bucket.newest, 2)
    if counter == rate - used then return used end
  end
  return sum(redis.call('ZRANGE', bucket.log, 0, -1))
end

local function oldest_live(bucket)
  local after = '(' .. text(bucket.now - bucket.interval)
  return tonumber(redis.call('ZRANGEBYSCORE', bucket.log, after, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2])
end

-- Leaves out what has returned: sets the permits in use and the oldest entry that is live.
local function advance(bucket)
  local cutoff = text(bucket.now - bucket.interval)
  bucket.oldest = tonumber(redis.call('ZRANGE', bucket.log, 0, 0, 'WITHSCORES')[2])
  bucket.returned = 0
  if bucket.oldest and bucket.oldest <= bucket.now - bucket.interval then
    bucket.returned = sum(redis.call('ZRANGEBYSCORE', bucket.log, '-inf', cutoff))
    bucket.oldest = oldest_live(bucket)
  end
  bucket.used = bucket.stored - bucket.returned
end

-- Milliseconds until an entry returns; one dated ahead of the clock counts as made now.
local function returns_in(bucket, score)
  return math.min(score, bucket.now) + bucket.interval - bucket.now
end

-- Milliseconds until so many permits have returned, counted from the oldest live entry on.
local function wait_for(bucket, missing)
  local cutoff = '(' .. text(bucket.now - bucket.interval)
  local entries = redis.call('ZRANGEBYSCORE', bucket.log, cutoff, '+inf', 'WITHSCORES', 'LIMIT', 0, math.min(missing, 2 * MAX_ENTRIES))
  for i = 1, #entries, 2 do
    missing = missing - permits_of(entries[i])
    if missing <= 0 then return returns_in(bucket, tonumber(entries[i + 1])) end
  end
  return bucket.interval
end

-- The bucket as it is stored and asked for.
local function read(key, arg, now)
  local bucket = {
    hash = KEYS[key], value = KEYS[key + 1], log = KEYS[key + 2], now = now,
    type = ARGV[arg], permits = tonumber(ARGV[arg + 1]), rate = tonumber(ARGV[arg + 2]), interval = tonumber(ARGV[arg + 3]),
  }
  local last = redis.call('ZRANGE', bucket.log, -1, -1, 'WITHSCORES')
  bucket.newest, bucket.newest_at = last[1], tonumber(last[2])
  bucket.stored = stored(bucket)
  return bucket
end

-- Judges one limit; writes nothing.
function token_bucket.check(key, arg, now)
  local bucket = read(key, arg, now)
  advance(bucket)
  local available = math.max(0, bucket.rate - bucket.used)
  bucket.granted = bucket.permits == 0 or bucket.permits <= available
  bucket.remaining = available
  bucket.wait = 0
  if not bucket.granted then
    bucket.wait = -1
    if bucket.permits <= bucket.rate then bucket.wait = wait_for(bucket, bucket.used + bucket.permits - bucket.rate) end
  end
  bucket.reset = bucket.oldest and returns_in(bucket, bucket.oldest) or 0
  return bucket
end

-- How long entries are kept: by the longest interval that anyone has judged by of late. While gateways with an old and a
-- new rule run side by side, the one with the shorter interval must not drop what the other still counts.
local function recall(bucket)
  bucket.config = redis.call('HMGET', bucket.hash, 'rate', 'interval', 'keepAliveTime', 'type', 'retain', 'retainUntil')
  bucket.last = tonumber(bucket.config[2]) or bucket.interval
  bucket.retained_until = tonumber(bucket.config[6]) or 0
  bucket.retain = bucket.retained_until > bucket.now and tonumber(bucket.config[5]) or 0
  bucket.horizon = math.min(math.max(bucket.interval, bucket.last, bucket.retain), MOST_RETAINED * bucket.interval)
end

-- Drops the entries that nobody counts any more.
local function forget(bucket)
  if bucket.returned == 0 then return end
  local until_then = text(bucket.now - bucket.horizon)
  local dropped = bucket.returned
  if bucket.horizon > bucket.interval then
    dropped = sum(redis.call('ZRANGEBYSCORE', bucket.log, '-inf', until_then))
  end
  redis.call('ZREMRANGEBYSCORE', bucket.log, '-inf', until_then)
  bucket.stored = bucket.stored - dropped
end

-- The clock went back: entries ahead of it become one of the present, so that they return within an interval.
local function redate(bucket, random)
  local ahead = '(' .. text(bucket.now)
  local permits = sum(redis.call('ZRANGEBYSCORE', bucket.log, ahead, '+inf'))
  bucket.newest, bucket.newest_at = pack(bucket, string.reverse(random), permits), bucket.now
  -- Added before the others go: an empty log would lose its time to live.
  redis.call('ZADD', bucket.log, text(bucket.now), bucket.newest)
  redis.call('ZREMRANGEBYSCORE', bucket.log, ahead, '+inf')
end

-- Do so many entries come together that grants share them?
local function shares_entries(bucket)
  return not bucket.separate and bucket.rate * math.ceil(bucket.horizon / bucket.interval) > MAX_ENTRIES
end

-- The first and the last moment of the slot that a grant belongs to; one millisecond where grants share no entries.
local function slot_of(bucket, at)
  if not shares_entries(bucket) then return at, at end
  local slot = math.ceil(bucket.horizon / (MAX_ENTRIES - 1))
  local first = math.floor(at / slot) * slot
  return first, first + slot - 1
end

-- Takes the newest entry out if this grant shares its slot; returns what it held.
local function share_entry(bucket)
  local live = bucket.newest_at and bucket.oldest
  if not live or not shares_entries(bucket) then return 0 end
  local first, last = slot_of(bucket, bucket.now)
  if bucket.newest_at < first or bucket.newest_at > last then return 0 end
  redis.call('ZREM', bucket.log, bucket.newest)
  if bucket.oldest >= bucket.newest_at then bucket.oldest = oldest_live(bucket) end
  return permits_of(bucket.newest)
end

-- Brings the hash up to our rule; if that changes the interval, the longer one is retained for twice its length.
local function configure(bucket, keep_alive)
  local config, rate, interval = bucket.config, text(bucket.rate), text(bucket.interval)
  local kept = text(2 * bucket.interval)
  if config[1] ~= rate or config[2] ~= interval or config[3] ~= kept or config[4] ~= bucket.type then
    redis.call('HSET', bucket.hash, 'rate', rate, 'interval', interval, 'keepAliveTime', kept, 'type', bucket.type)
  end
  if bucket.last ~= bucket.interval then
    redis.call('HSET', bucket.hash, 'retain', text(bucket.horizon), 'retainUntil', text(bucket.now + 2 * bucket.horizon))
  elseif bucket.retained_until ~= 0 and bucket.retained_until <= bucket.now then
    redis.call('HDEL', bucket.hash, 'retain', 'retainUntil')
  end
  redis.call('PEXPIRE', bucket.hash, keep_alive)
end

-- Takes what check() granted; nothing is written for a request that only asks.
function token_bucket.charge(bucket, random)
  if bucket.permits == 0 then return end
  recall(bucket)
  forget(bucket)
  if bucket.newest_at and bucket.newest_at > bucket.now then redate(bucket, random) end
  local shared = share_entry(bucket)
  bucket.used, bucket.stored = bucket.used + bucket.permits, bucket.stored + bucket.permits
  local member = pack(bucket, random, shared + bucket.permits)
  redis.call('ZADD', bucket.log, text(bucket.now), member)

  local keep_alive = text(2 * bucket.horizon)
  configure(bucket, keep_alive)
  redis.call('SET', bucket.value, text(bucket.rate - bucket.stored), 'PX', keep_alive)
  redis.call('PEXPIRE', bucket.log, keep_alive)
  bucket.remaining = math.max(0, bucket.rate - bucket.used)
  bucket.reset = returns_in(bucket, bucket.oldest or bucket.now)
end

-- A rule that grants nothing, since others with a shorter interval use all it allows, has to be remembered too: else
-- they would drop what it counts, and it would find room. Written at most once in an interval.
local function retain_for_the_refused(bucket)
  local lasts = bucket.retain >= bucket.interval and bucket.retained_until - bucket.now >= 2 * bucket.interval
  if bucket.last >= bucket.interval or lasts then return end
  local retained_until = text(bucket.now + 3 * bucket.interval)
  redis.call('HSET', bucket.hash, 'retain', text(bucket.interval), 'retainUntil', retained_until)
end

-- After a refusal: nothing is written, unless the clock went back, or a rule with a shorter interval would soon forget
-- what this one counts.
function token_bucket.settle(bucket, random)
  recall(bucket)
  retain_for_the_refused(bucket)
  if not bucket.newest_at or bucket.newest_at <= bucket.now then return end
  forget(bucket)
  redate(bucket, random)
  redis.call('SET', bucket.value, text(bucket.rate - bucket.stored), 'KEEPTTL')
end

-- The entry that such a grant made or joined, and its permits: one of just as many before one of more.
local function find_entry(bucket, at)
  local first, last = slot_of(bucket, at)
  first = math.max(first, bucket.now - bucket.interval + 1)
  local larger
  local entries = redis.call('ZRANGEBYSCORE', bucket.log, text(first), text(last), 'WITHSCORES')
  for i = 1, #entries, 2 do
    local permits = permits_of(entries[i])
    if permits == bucket.permits then return entries[i], permits, entries[i + 1] end
    if permits > bucket.permits and not larger then larger = { entries[i], permits, entries[i + 1] } end
  end
  if larger then return unpack(larger) end
end

-- Writes the counter, and seals the log anew. The entries of its newest millisecond become one, so that the one with the
-- new seal is the newest: a stale seal can be borne out by chance, when rules with different rates are in force.
local function seal(bucket)
  local last = redis.call('ZRANGE', bucket.log, -1, -1, 'WITHSCORES')
  local newest, score = last[1], last[2]
  if newest then
    local entries = redis.call('ZRANGEBYSCORE', bucket.log, score, score)
    local sealed = pack(bucket, string.sub(newest, -12, -5), sum(entries))
    redis.call('ZADD', bucket.log, score, sealed)
    for _, entry in ipairs(entries) do
      if entry ~= sealed then redis.call('ZREM', bucket.log, entry) end
    end
  end
  redis.call('SET', bucket.value, text(bucket.rate - bucket.stored), 'KEEPTTL')
end

-- Takes what was granted at a moment out of the log; was it there?
local function take_out(bucket, at)
  local entry, permits, score = find_entry(bucket, at)
  if not entry or bucket.permits == 0 then return false end
  if permits > bucket.permits then
    -- Added before the other goes: an empty log would lose its time to live.
    redis.call('ZADD', bucket.log, score, with_permits(entry, permits - bucket.permits))
  end
  redis.call('ZREM', bucket.log, entry)
  bucket.stored = bucket.stored - bucket.permits
  return true
end

-- Takes permits out of the log, as if they had never been granted.
function token_bucket.give_back(key, arg, at, now)
  local bucket = read(key, arg, now)
  recall(bucket)
  if take_out(bucket, at) then seal(bucket) end
end
