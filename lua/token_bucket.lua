-- token_bucket: a permit comes back exactly one interval after it was granted. The translation of
-- src/limit/token_bucket.rs, where the law is told; a property test holds the two equal.
--
-- KEYS  of a limiter: hash     Redisson's configuration: rate, interval, keepAliveTime, type; and while rules with
--                              different intervals are in force, ours: retain, retainUntil (ms)
--       of a bucket:  value    Redisson's counter: rate less the permits of all stored entries
--                     permits  Redisson's log, a sorted set: score = when granted (ms), member = 0x10, 16 bytes, permits
--                              (u32 LE)
-- ARGV  type (0 OVERALL, 1 PER_CLIENT), rate, interval (ms)
--
-- Invariant: the log is the truth and the counter its cache. The 16 bytes that Redisson fills at random are ours to seal
-- the log with, big-endian: the permits of all stored entries, this one included (32 bits); the writer's rate (32); how
-- many ms older the first stored entry is (32; the largest number if it does not fit); how many ms the keys live on at
-- least (16, a power of two and a factor); a number that tells the entry from others of the same kind (16). While the
-- counter is what the newest entry's seal says, nobody else has touched the bucket, and nothing more need be read; else
-- the log is summed, which heals whatever was done to the counter. The seal sorts the entries of one millisecond in the
-- order in which they were written.

local token_bucket = { shared_keys = 1, keys = 2, args = 3 }

-- Above this many permits, grants of the same slot share an entry.
local MAX_ENTRIES = 512
-- How many intervals a longer one of another rule is retained for at most.
local MOST_RETAINED = 64
-- An age that does not fit into a seal.
local TOO_OLD = 4294967295

-- A whole number as text that is put together with others.
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

-- The entry with other permits, in the format that it has.
local function with_permits(member, permits)
  return string.sub(member, 1, -5) .. struct.pack('<I4', permits)
end

local function sum(entries)
  local permits = 0
  for _, member in ipairs(entries) do permits = permits + permits_of(member) end
  return permits
end

-- Adds an entry. One that is the same is another grant's, and must not be lost: then the number at its end is another.
local function add(bucket, at, member)
  local number = 0
  while redis.call('ZADD', bucket.log, 'NX', at, member) == 0 do
    number = number + 1
    member = string.sub(member, 1, 15) .. struct.pack('>I2', number) .. string.sub(member, 18)
  end
  return member
end

-- Adds an entry that seals the log.
local function add_sealed(bucket, at, permits, life)
  local age = math.min(math.max(0, at - (bucket.first or at)), TOO_OLD)
  local factor, power = math.floor(life), 0
  while factor >= 2048 do factor, power = math.floor(factor / 2), power + 1 end
  local member = struct.pack('>BI4I4I4I2I2<I4', 16, bucket.stored, bucket.rate, age, power * 2048 + factor, 0, permits)
  return add(bucket, at, member)
end

-- The newest entry, and what it seals if the counter bears it out: the permits of all stored entries, when the first of
-- them was granted, and how long the keys live on. A clock that went back knows nothing of lives.
local function read_seal(bucket)
  local last = redis.call('ZRANGE', bucket.log, -1, -1, 'WITHSCORES')
  bucket.newest, bucket.newest_at, bucket.stored, bucket.life = last[1], tonumber(last[2]), 0, 0
  if not bucket.newest then return end
  bucket.counter = tonumber(redis.call('GET', bucket.value))
  if #bucket.newest == 21 then
    local stored, rate, age, life = struct.unpack('>I4I4I4I2', bucket.newest, 2)
    if bucket.counter == rate - stored then
      bucket.stored = stored
      if age < TOO_OLD then bucket.first = bucket.newest_at - age end
      if bucket.newest_at <= bucket.now then
        bucket.life = life % 2048 * 2 ^ math.floor(life / 2048) - (bucket.now - bucket.newest_at)
      end
      return
    end
  end
  bucket.stored = sum(redis.call('ZRANGE', bucket.log, 0, -1))
end

-- The oldest live entry but the newest, if that is told: when it was granted.
local function oldest_live(bucket, newest)
  local after = '(' .. text(bucket.now - bucket.interval)
  local entries = redis.call('ZRANGEBYSCORE', bucket.log, after, '+inf', 'WITHSCORES', 'LIMIT', 0, newest and 2 or 1)
  local index = entries[1] == newest and 3 or 1
  return tonumber(entries[index + 1])
end

-- Leaves out what has returned: sets the permits in use and when the oldest entry that is live was granted.
local function advance(bucket)
  bucket.returned = 0
  if bucket.newest and not bucket.first then
    bucket.first = tonumber(redis.call('ZRANGE', bucket.log, 0, 0, 'WITHSCORES')[2])
  end
  bucket.oldest = bucket.first
  if bucket.first and bucket.first <= bucket.now - bucket.interval then
    bucket.returned = sum(redis.call('ZRANGEBYSCORE', bucket.log, '-inf', bucket.now - bucket.interval))
    bucket.oldest = oldest_live(bucket)
  end
  bucket.used = bucket.stored - bucket.returned
end

-- Milliseconds until an entry returns; one dated ahead of the clock counts as made now.
local function returns_in(bucket, score)
  return math.min(score, bucket.now) + bucket.interval - bucket.now
end

-- Milliseconds until so many permits have returned, counted from the oldest live entry on. What this call has taken
-- returns last, and with it the entry that it joins.
local function wait_for(bucket, missing)
  local after = '(' .. text(bucket.now - bucket.interval)
  local entries = redis.call('ZRANGEBYSCORE', bucket.log, after, '+inf', 'WITHSCORES', 'LIMIT', 0, math.min(missing, 2 * MAX_ENTRIES))
  for i = 1, #entries, 2 do
    if bucket.joined and entries[i] == bucket.newest then break end
    missing = missing - permits_of(entries[i])
    if missing <= 0 then return returns_in(bucket, tonumber(entries[i + 1])) end
  end
  return bucket.interval
end

-- What the buckets of a limiter have in common.
function token_bucket.limiter(key, arg)
  return {
    hash = KEYS[key], type = ARGV[arg], rate_text = ARGV[arg + 1], interval_text = ARGV[arg + 2],
    rate = tonumber(ARGV[arg + 1]), interval = tonumber(ARGV[arg + 2]),
  }
end

-- A bucket as it is stored; writes nothing.
function token_bucket.open(limiter, key, now)
  local bucket = {
    limiter = limiter, rate = limiter.rate, interval = limiter.interval,
    value = KEYS[key], log = KEYS[key + 1], now = now,
  }
  read_seal(bucket)
  advance(bucket)
  return bucket
end

-- Judges a request; writes nothing.
function token_bucket.check(bucket, permits)
  local available = math.max(0, bucket.rate - bucket.used)
  bucket.granted = permits == 0 or permits <= available
  bucket.remaining, bucket.wait, bucket.delay = available, 0, 0
  bucket.alike = permits == 0 and math.huge or math.floor(available / permits)
  if not bucket.granted then
    bucket.wait = permits <= bucket.rate and wait_for(bucket, bucket.used + permits - bucket.rate) or -1
  end
  bucket.reset = bucket.oldest and returns_in(bucket, bucket.oldest) or 0
end

-- How long entries are kept: by the longest interval that anyone has judged by of late. While gateways with an old and a
-- new rule run side by side, the one with the shorter interval must not drop what the other still counts.
local function recall(limiter, now)
  if limiter.config then return end
  limiter.config = redis.call('HMGET', limiter.hash, 'rate', 'interval', 'keepAliveTime', 'type', 'retain', 'retainUntil')
  limiter.last = tonumber(limiter.config[2]) or limiter.interval
  limiter.retained_until = tonumber(limiter.config[6]) or 0
  limiter.retain = limiter.retained_until > now and tonumber(limiter.config[5]) or 0
  local longest = math.max(limiter.interval, limiter.last, limiter.retain)
  limiter.horizon = math.min(longest, MOST_RETAINED * limiter.interval)
end

-- Drops the entries that nobody counts any more.
local function forget(bucket)
  if bucket.returned == 0 then return end
  local until_then = bucket.now - bucket.horizon
  local dropped, first = bucket.returned, bucket.oldest
  if bucket.horizon > bucket.interval then
    dropped = sum(redis.call('ZRANGEBYSCORE', bucket.log, '-inf', until_then))
  end
  redis.call('ZREMRANGEBYSCORE', bucket.log, '-inf', until_then)
  if bucket.horizon > bucket.interval then
    first = tonumber(redis.call('ZRANGE', bucket.log, 0, 0, 'WITHSCORES')[2])
  end
  bucket.stored, bucket.first = bucket.stored - dropped, first
  -- An empty log is none, and its life is over.
  if not first then bucket.newest, bucket.newest_at, bucket.life = nil, nil, 0 end
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

-- The permits of the newest entry if grants of the present join it; then it is no longer the oldest.
local function join_newest(bucket)
  if not (bucket.newest_at and bucket.oldest) or not shares_entries(bucket) then return end
  local first, last = slot_of(bucket, bucket.now)
  if bucket.newest_at < first or bucket.newest_at > last then return end
  if bucket.oldest >= bucket.newest_at then
    local oldest = oldest_live(bucket, bucket.newest)
    if bucket.first == bucket.oldest then bucket.first = oldest end
    bucket.oldest = oldest
  end
  return permits_of(bucket.newest)
end

-- The clock went back: entries ahead of it become one of the present, so that they return within an interval. It is added
-- by `add_entry`, before they go: an empty log would lose its time to live.
local function redate(bucket, add_entry)
  local ahead = '(' .. text(bucket.now)
  local permits = sum(redis.call('ZRANGEBYSCORE', bucket.log, ahead, '+inf'))
  bucket.first = bucket.first and math.min(bucket.first, bucket.now)
  bucket.oldest = bucket.oldest and math.min(bucket.oldest, bucket.now)
  bucket.newest, bucket.newest_at = add_entry(permits), bucket.now
  redis.call('ZREMRANGEBYSCORE', bucket.log, ahead, '+inf')
end

local function redate_sealed(bucket)
  redate(bucket, function(permits) return add_sealed(bucket, bucket.now, permits, 0) end)
end

-- What has to be done before a bucket is charged for the first time in a call.
local function begin(bucket)
  recall(bucket.limiter, bucket.now)
  bucket.horizon, bucket.added = bucket.limiter.horizon, 0
  forget(bucket)
  if bucket.newest_at and bucket.newest_at > bucket.now then redate_sealed(bucket) end
  bucket.joined = join_newest(bucket)
end

-- Takes permits that check() granted; writes no more than what makes way for them.
function token_bucket.charge(bucket, permits)
  if permits == 0 then return end
  if not bucket.added then begin(bucket) end
  bucket.added, bucket.used, bucket.stored = bucket.added + permits, bucket.used + permits, bucket.stored + permits
  bucket.oldest, bucket.first = bucket.oldest or bucket.now, bucket.first or bucket.now
  bucket.remaining = math.max(0, bucket.rate - bucket.used)
  bucket.reset = returns_in(bucket, bucket.oldest)
end

-- Brings the hash up to our rule; if that changes the interval, the longer one is retained for twice its length.
local function configure(limiter, now)
  if limiter.configured then return end
  limiter.configured = true
  local config, kept = limiter.config, text(2 * limiter.interval)
  if config[1] ~= limiter.rate_text or config[2] ~= limiter.interval_text or config[3] ~= kept or config[4] ~= limiter.type then
    redis.call('HSET', limiter.hash, 'rate', limiter.rate_text, 'interval', limiter.interval_text,
      'keepAliveTime', kept, 'type', limiter.type)
  end
  if limiter.last ~= limiter.interval then
    redis.call('HSET', limiter.hash, 'retain', limiter.horizon, 'retainUntil', now + 2 * limiter.horizon)
  elseif limiter.retained_until ~= 0 and limiter.retained_until <= now then
    redis.call('HDEL', limiter.hash, 'retain', 'retainUntil')
  end
  redis.call('PEXPIRE', limiter.hash, 2 * limiter.horizon)
end

-- Writes what was charged in this call: one entry, as all of it was granted in one millisecond. Keys that live on for long
-- enough are let live; else for twice as long as anybody may count the entry.
function token_bucket.save(bucket)
  local keep = 2 * bucket.horizon
  local lives_on = bucket.life >= 0.75 * keep
  add_sealed(bucket, bucket.now, (bucket.joined or 0) + bucket.added, lives_on and bucket.life or keep)
  if bucket.joined then redis.call('ZREM', bucket.log, bucket.newest) end
  configure(bucket.limiter, bucket.now)
  local counter = bucket.rate - bucket.stored
  if lives_on then
    redis.call('INCRBY', bucket.value, counter - bucket.counter)
  else
    redis.call('SET', bucket.value, counter, 'PX', keep)
    redis.call('PEXPIRE', bucket.log, keep)
  end
end

-- A rule that grants nothing, since others with a shorter interval use all it allows, has to be remembered too: else
-- they would drop what it counts, and it would find room. Written at most once in an interval.
local function retain_for_the_refused(limiter, now)
  if limiter.configured or limiter.last >= limiter.interval then return end
  if limiter.retain >= limiter.interval and limiter.retained_until - now >= 2 * limiter.interval then return end
  limiter.retain, limiter.retained_until = limiter.interval, now + 3 * limiter.interval
  redis.call('HSET', limiter.hash, 'retain', limiter.retain, 'retainUntil', limiter.retained_until)
end

-- After a refusal: nothing is written, unless the clock went back, or a rule with a shorter interval would soon forget
-- what this one counts.
function token_bucket.settle(bucket)
  recall(bucket.limiter, bucket.now)
  bucket.horizon = bucket.limiter.horizon
  retain_for_the_refused(bucket.limiter, bucket.now)
  if not bucket.newest_at or bucket.newest_at <= bucket.now then return end
  forget(bucket)
  redate_sealed(bucket)
  redis.call('SET', bucket.value, bucket.rate - bucket.stored, 'KEEPTTL')
end

-- The entry that a grant of so many permits made or joined, and its permits: one of just as many before one of more.
local function find_entry(bucket, permits, at)
  local first, last = slot_of(bucket, at)
  first = math.max(first, bucket.now - bucket.interval + 1)
  local larger
  local entries = redis.call('ZRANGEBYSCORE', bucket.log, first, last, 'WITHSCORES')
  for i = 1, #entries, 2 do
    local held = permits_of(entries[i])
    if held == permits then return entries[i], held, entries[i + 1] end
    if held > permits and not larger then larger = { entries[i], held, entries[i + 1] } end
  end
  if larger then return unpack(larger) end
end

-- Writes the counter, and seals the log anew. The entries of its newest millisecond become one, so that the one with the
-- new seal is the newest: a stale seal can be borne out by chance, when rules with different rates are in force.
local function seal(bucket)
  local newest_at = tonumber(redis.call('ZRANGE', bucket.log, -1, -1, 'WITHSCORES')[2])
  if newest_at then
    local entries = redis.call('ZRANGEBYSCORE', bucket.log, newest_at, newest_at)
    bucket.first = tonumber(redis.call('ZRANGE', bucket.log, 0, 0, 'WITHSCORES')[2])
    add_sealed(bucket, newest_at, sum(entries), 0)
    for _, entry in ipairs(entries) do redis.call('ZREM', bucket.log, entry) end
  end
  redis.call('SET', bucket.value, bucket.rate - bucket.stored, 'KEEPTTL')
end

-- Takes what was granted at a moment out of the log; was it there?
local function take_out(bucket, permits, at)
  local entry, held, score = find_entry(bucket, permits, at)
  if not entry or permits == 0 then return false end
  if held > permits then
    -- Added before the other goes: an empty log would lose its time to live.
    add(bucket, score, with_permits(entry, held - permits))
  end
  redis.call('ZREM', bucket.log, entry)
  bucket.stored = bucket.stored - permits
  return true
end

-- Takes permits out of the log, as if they had never been granted.
function token_bucket.give_back(limiter, key, permits, at, now)
  local bucket = token_bucket.open(limiter, key, now)
  recall(limiter, now)
  bucket.horizon = limiter.horizon
  if take_out(bucket, permits, at) then seal(bucket) end
end
