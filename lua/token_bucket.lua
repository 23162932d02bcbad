-- token_bucket: a permit comes back exactly one interval after it was granted. The translation of
-- src/limit/token_bucket.rs, where the law is told; a property test holds the two equal.
--
-- KEYS  of a limiter: hash     Redisson's configuration: rate, interval, keepAliveTime, type; and while rules with
--                              different intervals are in force, ours: retain, retainUntil (ms). A zero before the
--                              interval says that those are there, so that one look at it tells
--       of a bucket:  value    Redisson's counter: rate less the permits of all stored entries
--                     permits  Redisson's log, a sorted set: score = when granted (ms), member = 0x10, 16 bytes, permits
--                              (u32 LE)
-- ARGV  type (0 OVERALL, 1 PER_CLIENT), rate, interval (ms)
--
-- Invariant: the log is the truth and the counter its cache. The 16 bytes that Redisson fills at random are ours to seal
-- the log with, big-endian: the permits of all stored entries, this one included (4 bytes); the writer's rate, as far as
-- it fits (3); when it was written (6); how many ms older the first stored entry is (3; the largest number if that does
-- not fit). While the counter is what the newest entry's seal says under our own rate, nobody else has touched the
-- bucket, and nothing more need be read; else the log is summed, which heals whatever was done to the counter. The seal
-- sorts the entries of one millisecond in the order in which they were written.
--
-- What is fast here is written for it: in Redis, to make text of a number, to grow a table or to ask for a score costs as
-- much as a small command.

local token_bucket = { shared_keys = 1, keys = 2, args = 3 }

local call, try, pack, unpack_bytes = redis.call, redis.pcall, struct.pack, struct.unpack
local floor, ceil = math.floor, math.ceil

-- Above this many permits, grants of the same slot share an entry.
local MAX_ENTRIES = 512
-- How many intervals a longer one of another rule is retained for at most.
local MOST_RETAINED = 64
-- As much of a rate as a seal holds, and an age that does not fit into it.
local SEALED_RATES, TOO_OLD = 16777216, 16777215

-- Permits of an entry in any format that Redisson has had: a length, so many bytes and the permits (today of 21 bytes,
-- once of 13); before 3.17 the length had 8 bytes (20 in all), and before 3.16.4 there was a float instead (8 in all).
-- The permits have always been the last four.
local function permits_of(member)
  if #member < 4 then return 0 end
  local permits = unpack_bytes('<I4', member, #member - 3)
  return permits
end

-- The entry with other permits, in the format that it has.
local function with_permits(member, permits)
  return string.sub(member, 1, -5) .. pack('<I4', permits)
end

local function sum(entries)
  local permits = 0
  for _, member in ipairs(entries) do permits = permits + permits_of(member) end
  return permits
end

-- Adds an entry. One that is the same is another grant's, and must not be lost: then this one is numbered, under a seal
-- that nothing can bear out.
local function add(log, at, member)
  local number = 0
  while call('ZADD', log, 'NX', at, member) == 0 do
    number = number + 1
    member = pack('>BI4I4I8<I4', 16, 4294967295, 0, number, permits_of(member))
  end
  return member
end

-- The sealed entry of so many permits.
local function sealed(bucket, at, permits)
  local limiter, age = bucket.limiter, at - (bucket.first or at)
  if age > TOO_OLD then age = TOO_OLD elseif age < 0 then age = 0 end
  return pack('>BI4I3I6I3<I4', 16, bucket.stored, limiter.sealed_rate, at, age, permits)
end

-- When the oldest entry was granted.
local function oldest_stored(log)
  return tonumber(call('ZRANGE', log, '0', '0', 'WITHSCORES')[2])
end

-- When the oldest live entry was granted; or if the newest is told, the oldest but this.
local function oldest_live(bucket, newest)
  local after = '(' .. known_text(bucket.limiter.expired)
  local limit = newest and '2' or '1'
  local entries = call('ZRANGEBYSCORE', bucket.log, after, '+inf', 'WITHSCORES', 'LIMIT', '0', limit)
  local index = entries[1] == newest and 3 or 1
  return tonumber(entries[index + 1])
end

-- Leaves out what has returned: sets the permits that are in use no more, and when the oldest entry that is was granted.
local function leave_out_returned(bucket)
  if bucket.newest_at <= bucket.limiter.expired then
    -- All of it: as much as that is need not be read.
    bucket.returned, bucket.used, bucket.oldest, bucket.over = bucket.stored, 0, nil, true
    return
  end
  bucket.returned = sum(call('ZRANGEBYSCORE', bucket.log, '-inf', known_text(bucket.limiter.expired)))
  bucket.oldest = oldest_live(bucket)
  bucket.used = bucket.stored - bucket.returned
end

-- Milliseconds until an entry returns; one dated ahead of the clock counts as made now.
local function returns_in(bucket, score)
  local limiter = bucket.limiter
  return score < limiter.now and score - limiter.expired or limiter.interval
end

-- Milliseconds until so many permits have returned, counted from the oldest live entry on. What this call has taken
-- returns last, and with it the entry that it joins.
local function wait_for(bucket, missing)
  local after, limit = '(' .. known_text(bucket.limiter.expired), math.min(missing, 2 * MAX_ENTRIES)
  local entries = call('ZRANGEBYSCORE', bucket.log, after, '+inf', 'WITHSCORES', 'LIMIT', '0', limit)
  for i = 1, #entries, 2 do
    if bucket.joined and entries[i] == bucket.newest then break end
    missing = missing - permits_of(entries[i])
    if missing <= 0 then return returns_in(bucket, tonumber(entries[i + 1])) end
  end
  return bucket.limiter.interval
end

-- What the buckets of a limiter have in common, as far as its words tell; and nothing yet of what is found in a call.
local function limiter_by(words, at)
  local rate, interval = tonumber(words[at + 1]), tonumber(words[at + 2])
  return {
    type = words[at], rate_text = words[at + 1], interval_text = words[at + 2], rate = rate, interval = interval,
    sealed_rate = rate % SEALED_RATES, half = interval > 1 and floor(interval / 2) or 1,
    slot = rate > MAX_ENTRIES and ceil(interval / (MAX_ENTRIES - 1)), slot_begins = math.huge, text_of_now = '',
    hash = '', now = 0, expired = 0, half_begins = 0, alone = nil, config = nil, prepared = nil, configured = nil,
    revived = nil, revivable = nil, last = nil, retain = nil, retained_until = nil, horizon = nil, shares = nil,
  }
end

-- What the buckets of a limiter have in common.
function token_bucket.limiter(key, words, at, now, limiter)
  if limiter then
    limiter.alone, limiter.config, limiter.prepared, limiter.configured = nil, nil, nil, nil
    limiter.revived, limiter.revivable, limiter.shares = nil, nil, nil
  else
    limiter = limiter_by(words, at)
  end
  limiter.hash, limiter.now, limiter.expired = KEYS[key], now, now - limiter.interval
  limiter.half_begins, limiter.text_of_now = now - now % limiter.half, texts[now] or known_text(now)
  if limiter.slot then limiter.slot_begins = now - now % limiter.slot end
  return limiter
end

-- A bucket of which no seal tells: the whole log is read.
local function open_unsealed(bucket, newest)
  local log = bucket.log
  bucket.newest, bucket.newest_at = newest, tonumber(call('ZSCORE', log, newest))
  bucket.stored = sum(call('ZRANGE', log, '0', '-1'))
  bucket.used, bucket.first = bucket.stored, oldest_stored(log)
  bucket.oldest = bucket.first
  if bucket.first <= bucket.limiter.expired then leave_out_returned(bucket) end
  return bucket
end

-- A bucket as it is stored; writes nothing. A bucket of which nothing is stored has no `newest`, no `first` and no
-- `oldest` entry; what else is left out is nothing.
function token_bucket.open(limiter, key)
  local value, log = KEYS[key], KEYS[key + 1]
  local newest = call('ZREVRANGE', log, '0', '0')[1]
  if not newest then return { limiter = limiter, value = value, log = log, stored = 0, used = 0 } end
  if #newest == 21 then
    local stored, rate, at, age = unpack_bytes('>I4I3I6I3', newest, 2)
    local counter, first = tonumber(call('GET', value)), at - age
    if rate == limiter.sealed_rate and counter == limiter.rate - stored and age < TOO_OLD then
      local bucket = {
        limiter = limiter, value = value, log = log, newest = newest, newest_at = at, counter = counter,
        stored = stored, used = stored, first = first, oldest = first,
      }
      if first <= limiter.expired then leave_out_returned(bucket) end
      return bucket
    end
  end
  return open_unsealed({ limiter = limiter, value = value, log = log }, newest)
end

-- Judges a request; writes nothing.
function token_bucket.check(bucket, permits)
  local rate, used = bucket.limiter.rate, bucket.used
  if used + permits <= rate or permits == 0 then return true, 0 end
  return false, permits <= rate and wait_for(bucket, used + permits - rate) or -1
end

-- What remains, and when there will be more.
function token_bucket.tell(bucket)
  local limiter, oldest, reset = bucket.limiter, bucket.oldest, 0
  local remaining = limiter.rate - bucket.used
  if oldest then reset = oldest < limiter.now and oldest - limiter.expired or limiter.interval end
  return remaining > 0 and remaining or 0, reset
end

-- How long entries are kept: by the longest interval that anyone has judged by of late. While gateways with an old and a
-- new rule run side by side, the one with the shorter interval must not drop what the other still counts.
local function recall(limiter)
  if limiter.config then return end
  local config = call('HMGET', limiter.hash, 'rate', 'interval', 'keepAliveTime', 'type', 'retain', 'retainUntil')
  limiter.config, limiter.last = config, tonumber(config[2]) or limiter.interval
  limiter.retained_until = tonumber(config[6]) or 0
  limiter.retain = limiter.retained_until > limiter.now and tonumber(config[5]) or 0
  local longest = math.max(limiter.interval, limiter.last, limiter.retain)
  limiter.horizon = math.min(longest, MOST_RETAINED * limiter.interval)
end

-- Do so many entries come together that grants share them?
local function shares_entries(limiter)
  return not limiter.separate and limiter.rate * math.ceil(limiter.horizon / limiter.interval) > MAX_ENTRIES
end

-- What has to be known of a limiter before its buckets are charged. Keys are made to live on with the first grant in
-- each half of a horizon, for long enough for all of it; but with every grant while other intervals are remembered.
local function prepare(limiter)
  recall(limiter)
  limiter.prepared, limiter.shares = true, shares_entries(limiter)
  local half = math.max(1, floor(limiter.horizon / 2))
  local others = not limiter.config[2] or limiter.last ~= limiter.interval or limiter.retain > 0
  limiter.alive_since = others and math.huge or floor(limiter.now / half) * half
end

-- Drops the entries that nobody counts any more.
local function forget(bucket)
  local limiter = bucket.limiter
  local until_then, retained = known_text(limiter.now - limiter.horizon), limiter.horizon > limiter.interval
  local dropped, first = bucket.returned, bucket.oldest
  if retained then dropped = sum(call('ZRANGEBYSCORE', bucket.log, '-inf', until_then)) end
  -- A whole log is freed behind the scenes.
  if bucket.over and not retained then
    call('UNLINK', bucket.log)
  else
    call('ZREMRANGEBYSCORE', bucket.log, '-inf', until_then)
  end
  if retained then first = oldest_stored(bucket.log) end
  bucket.stored, bucket.first = bucket.stored - dropped, first
  -- An empty log is none, and its life is over.
  if not first then bucket.newest, bucket.newest_at = nil, nil end
end

-- The first and the last moment of the slot that a grant belongs to; one millisecond where grants share no entries.
local function slot_of(limiter, at)
  if not limiter.shares and not shares_entries(limiter) then return at, at end
  local slot = math.ceil(limiter.horizon / (MAX_ENTRIES - 1))
  local first = floor(at / slot) * slot
  return first, first + slot - 1
end

-- The permits of the newest entry if grants of the present join it; then it is no longer the oldest.
local function join_newest(bucket)
  if not (bucket.newest_at and bucket.oldest) then return end
  local first, last = slot_of(bucket.limiter, bucket.limiter.now)
  if bucket.newest_at < first or bucket.newest_at > last then return end
  if bucket.oldest >= bucket.newest_at then
    local oldest = oldest_live(bucket, bucket.newest)
    if bucket.first == bucket.oldest then bucket.first = oldest end
    bucket.oldest = oldest
  end
  return permits_of(bucket.newest)
end

-- The clock went back: entries ahead of it become one of the present, so that they return within an interval. It is made
-- and added by `add_entry`, before they go: an empty log would lose its time to live.
local function redate(bucket, add_entry)
  local now = bucket.limiter.now
  local ahead = '(' .. text(now)
  local permits = sum(call('ZRANGEBYSCORE', bucket.log, ahead, '+inf'))
  bucket.first = bucket.first and math.min(bucket.first, now)
  bucket.oldest = bucket.oldest and math.min(bucket.oldest, now)
  bucket.newest, bucket.newest_at = add_entry(permits), now
  call('ZREMRANGEBYSCORE', bucket.log, ahead, '+inf')
end

local function redate_sealed(bucket)
  local now = bucket.limiter.now
  redate(bucket, function(permits) return add(bucket.log, now, sealed(bucket, now, permits)) end)
  bucket.counter = nil
end

-- What has to be done before a bucket is charged for the first time in a call.
local function begin(bucket)
  local limiter = bucket.limiter
  if not limiter.prepared then prepare(limiter) end
  bucket.added = 0
  if bucket.returned and bucket.returned > 0 then forget(bucket) end
  if bucket.newest_at and bucket.newest_at > limiter.now then redate_sealed(bucket) end
  if limiter.shares then bucket.joined = join_newest(bucket) end
end

-- Takes permits that check() granted; writes no more than what makes way for them.
function token_bucket.charge(bucket, permits)
  if permits == 0 then return end
  if not bucket.added then begin(bucket) end
  bucket.added, bucket.used = bucket.added + permits, bucket.used + permits
  if not bucket.oldest then
    bucket.oldest = bucket.limiter.now
    bucket.first = bucket.first or bucket.oldest
  end
end

-- Brings the hash up to our rule; if that changes the interval, the longer one is retained for twice its length.
local function configure(limiter)
  limiter.configured = true
  local config, kept, now, interval = limiter.config, 2 * limiter.interval, limiter.now, limiter.interval_text
  if limiter.last ~= limiter.interval or limiter.retained_until > now then interval = '0' .. interval end
  local known = config[1] == limiter.rate_text and config[2] == interval and config[4] == limiter.type
  if not known or tonumber(config[3]) ~= kept then
    call('HSET', limiter.hash, 'rate', limiter.rate_text, 'interval', interval, 'keepAliveTime', text(kept),
      'type', limiter.type)
  end
  if limiter.last ~= limiter.interval then
    call('HSET', limiter.hash, 'retain', limiter.horizon, 'retainUntil', now + 2 * limiter.horizon)
  elseif limiter.retained_until ~= 0 and limiter.retained_until <= now then
    call('HDEL', limiter.hash, 'retain', 'retainUntil')
  end
end

-- Lets the keys of a bucket live on for twice as long as anybody may count its newest entry, and the hash with them.
local function revive(limiter, value, log)
  local keep = known_text(2 * limiter.horizon)
  call('PEXPIRE', value, keep)
  call('PEXPIRE', log, keep)
  if not limiter.revived then call('PEXPIRE', limiter.hash, keep) end
  limiter.revived = true
end

-- Writes what was charged in this call: one entry, as all of it was granted in one millisecond.
function token_bucket.save(bucket)
  local limiter, log, permits = bucket.limiter, bucket.log, bucket.added
  bucket.stored = bucket.stored + permits
  if bucket.joined then permits = permits + bucket.joined end
  add(log, limiter.text_of_now, sealed(bucket, limiter.now, permits))
  if bucket.joined then call('ZREM', log, bucket.newest) end
  if not limiter.configured then configure(limiter) end
  call('SET', bucket.value, text(limiter.rate - bucket.stored), 'KEEPTTL')
  local lives = bucket.counter and bucket.newest_at and bucket.newest_at >= limiter.alive_since
  if not lives then revive(limiter, bucket.value, log) end
end

-- A rule that grants nothing, since others with a shorter interval use all it allows, has to be remembered too: else
-- they would drop what it counts, and it would find room. Written at most once in an interval.
local function retain_for_the_refused(limiter)
  if limiter.configured or limiter.last >= limiter.interval then return end
  if limiter.retain >= limiter.interval and limiter.retained_until - limiter.now >= 2 * limiter.interval then return end
  limiter.retain, limiter.retained_until = limiter.interval, limiter.now + 3 * limiter.interval
  call('HSET', limiter.hash, 'retain', limiter.retain, 'retainUntil', limiter.retained_until,
    'interval', '0' .. text(limiter.last))
end

-- After a refusal: nothing is written, unless the clock went back, or a rule with a shorter interval would soon forget
-- what this one counts.
function token_bucket.settle(bucket)
  local limiter = bucket.limiter
  recall(limiter)
  retain_for_the_refused(limiter)
  if not bucket.newest_at or bucket.newest_at <= limiter.now then return end
  if bucket.returned and bucket.returned > 0 then forget(bucket) end
  redate_sealed(bucket)
  call('SET', bucket.value, limiter.rate - bucket.stored, 'KEEPTTL')
end

-- The entry that a grant of so many permits made or joined, and its permits: one of just as many before one of more.
local function find_entry(bucket, permits, at)
  local first, last = slot_of(bucket.limiter, at)
  first = math.max(first, bucket.limiter.expired + 1)
  local larger
  local entries = call('ZRANGEBYSCORE', bucket.log, first, last, 'WITHSCORES')
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
  local newest_at = tonumber(call('ZRANGE', bucket.log, '-1', '-1', 'WITHSCORES')[2])
  if newest_at then
    local entries = call('ZRANGEBYSCORE', bucket.log, newest_at, newest_at)
    bucket.first = oldest_stored(bucket.log)
    local member = sealed(bucket, newest_at, sum(entries))
    -- The same as before is sealed as it should be.
    if #entries == 1 and entries[1] == member then entries = {} else add(bucket.log, newest_at, member) end
    for _, entry in ipairs(entries) do call('ZREM', bucket.log, entry) end
  end
  call('SET', bucket.value, bucket.limiter.rate - bucket.stored, 'KEEPTTL')
end

-- Takes what was granted at a moment out of the log; was it there?
local function take_out(bucket, permits, at)
  local entry, held, score = find_entry(bucket, permits, at)
  if not entry or permits == 0 then return false end
  -- Added before the other goes: an empty log would lose its time to live.
  if held > permits then add(bucket.log, score, with_permits(entry, held - permits)) end
  call('ZREM', bucket.log, entry)
  bucket.stored = bucket.stored - permits
  return true
end

-- Takes permits out of the log, as if they had never been granted.
function token_bucket.give_back(limiter, key, permits, at)
  local bucket = token_bucket.open(limiter, key)
  recall(limiter)
  if take_out(bucket, permits, at) then seal(bucket) end
end
