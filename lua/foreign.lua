-- foreign: a limiter that Redisson's clients use too. A permit comes back exactly one interval after it was granted, as
-- in token_bucket.lua; but here others write the hash, the counter and the log with us, by their own clocks.
--
-- KEYS  of a bucket: hash, value, value of the client, permits, permits of the client, as Redisson orders them. Without a
--       client the keys of the client are those of everybody
-- ARGV  law: adopt      the hash says rate, interval and type
--            configure  we say them, and bring the hash up to date with the first grant
--            library    adopt, with expiry and log as tidegate::RateLimiter keeps them
--       type (0 OVERALL, 1 PER_CLIENT, empty: whichever the hash says), rate, interval (ms; both empty unless the law
--       is configure)
-- Errors NOTINITIALISED if the hash lacks rate, interval or type; MODEDIFFERS if its type is another than was told
--
-- Invariant: the log wins over the counter, which a peer's release() raises and a resent acquire lowers. After each
-- call that writes, counter = rate - permits of all stored entries. Nothing remembers refusals, and an entry is written
-- under 16 bytes of no meaning: a peer whose clock is behind writes entries that sort before ours, so that nothing the
-- newest entry could say would prove what lies below it.
--
-- Bounded cost: a call reads 512 entries that have returned, which it removes, and 512 live ones. More that have
-- returned are left for the next calls; a request that they may have held up is told to ask again at once. Of more live
-- entries the permits are what the counter says, but never less than the 512 newest hold and one for each of the rest.

local foreign = { shared_keys = 0, keys = 5, args = 4, one_by_one = true }

local BOUND = 512

-- Rates of Java can be larger than numbers are exact.
local MOST = 9007199254740991
local MOST_REMAINING = 4294967295

-- Reads the hash, as far as the law wants to know it; says what is wrong with it.
local function follow_hash(bucket, told)
  local hash = redis.call('HMGET', bucket.hash, 'rate', 'interval', 'type', 'keepAliveTime')
  bucket.stored_rate, bucket.keep_alive = tonumber(hash[1]), tonumber(hash[4])
  bucket.stored_interval, bucket.stored_type = tonumber(hash[2]), hash[3]
  if bucket.law == 'configure' then return end
  if not (bucket.stored_rate and bucket.stored_interval and hash[3]) then return 'NOTINITIALISED ' .. bucket.hash end
  if told ~= '' and told ~= hash[3] then return 'MODEDIFFERS ' .. bucket.hash end
  bucket.rate, bucket.interval, bucket.type = bucket.stored_rate, bucket.stored_interval, hash[3]
end

-- Of the live entries: the permits as far as they are read, one for each of the rest, and the oldest with its score.
local function read_live(bucket, after)
  local live
  if bucket.live <= BOUND then
    live = redis.call('ZRANGEBYSCORE', bucket.log, after, '+inf', 'WITHSCORES')
    bucket.entries = live
  else
    live = redis.call('ZREVRANGE', bucket.log, 0, BOUND - 1, 'WITHSCORES')
  end
  local permits = math.max(0, bucket.live - BOUND)
  for i = 1, #live, 2 do permits = permits + permits_of(live[i]) end
  return permits
end

-- Reads the log within the bound. `stored` is what all entries hold that stay, `used` what of it has not returned.
local function take_stock(bucket)
  local cutoff = text(bucket.now - bucket.interval)
  bucket.counter = tonumber(redis.call('GET', bucket.value))
  local returned = redis.call('ZRANGEBYSCORE', bucket.log, '-inf', cutoff, 'LIMIT', 0, BOUND)
  bucket.returned = #returned
  bucket.live = redis.call('ZCOUNT', bucket.log, '(' .. cutoff, '+inf')
  bucket.left_behind = redis.call('ZCARD', bucket.log) - bucket.live - bucket.returned
  bucket.least = read_live(bucket, '(' .. cutoff)
  bucket.stored = bucket.least + bucket.left_behind
  bucket.exact = bucket.live <= BOUND and bucket.left_behind == 0
  if not bucket.exact and bucket.counter and bucket.counter_rate then
    bucket.stored = math.max(bucket.stored, bucket.counter_rate - bucket.counter - sum(returned))
  end
  bucket.used = bucket.live <= BOUND and bucket.least or bucket.stored
end

-- The bucket of a limiter, as it is stored. The counter is held against the rate of the hash, unless the caller knows
-- that it was written under another.
function foreign.read(key, law, told, now, rate, interval, counter_rate)
  local bucket = { hash = KEYS[key], law = law, now = now, type = told, rate = rate, interval = interval }
  -- What the functions of token_bucket.lua ask of a limiter: here each bucket has its own.
  bucket.limiter, bucket.separate = bucket, law ~= 'library'
  bucket.failure = follow_hash(bucket, told)
  if bucket.failure then return bucket end
  bucket.rate = math.min(bucket.rate, MOST)
  bucket.stored_rate = bucket.stored_rate and math.min(bucket.stored_rate, MOST)
  bucket.horizon, bucket.expired = bucket.interval, now - bucket.interval
  bucket.counter_rate = counter_rate or bucket.stored_rate
  local own = bucket.type == '1' and 1 or 0
  bucket.value, bucket.log = KEYS[key + 1 + own], KEYS[key + 3 + own]
  take_stock(bucket)
  return bucket
end

-- Milliseconds until an entry returns. In a log of our own, what is dated ahead counts as made now, since it will be
-- redated; elsewhere it is left as its writer dated it.
local function due_in(bucket, score)
  if not bucket.separate then return returns_in(bucket, score) end
  return score + bucket.interval - bucket.now
end

-- A live entry by its rank among them; the last if there are not so many.
local function live_entry(bucket, rank)
  rank = math.min(rank, bucket.live - 1) + bucket.returned + bucket.left_behind
  return redis.call('ZRANGE', bucket.log, rank, rank, 'WITHSCORES')
end

-- Milliseconds until so many permits have returned. Beyond the bound every entry is taken to hold one.
local function wait_until(bucket, missing)
  if missing <= 0 then return 0 end
  local entries = bucket.entries
  if not entries then
    local first = bucket.returned + bucket.left_behind
    entries = redis.call('ZRANGE', bucket.log, first, first + BOUND - 1, 'WITHSCORES')
  end
  for i = 1, #entries, 2 do
    missing = missing - permits_of(entries[i])
    if missing <= 0 then return due_in(bucket, tonumber(entries[i + 1])) end
  end
  local last = live_entry(bucket, #entries / 2 + missing - 1)
  return last[2] and due_in(bucket, tonumber(last[2])) or bucket.interval
end

local function wait_for_permits(bucket, permits)
  if permits > bucket.rate then return -1 end
  -- What holds it up may have returned, and is not removed yet.
  if bucket.left_behind > 0 and bucket.least + permits <= bucket.rate then return 0 end
  return wait_until(bucket, bucket.used + permits - bucket.rate)
end

-- What the buckets of a limiter have in common.
function foreign.limiter(_, words, at)
  return { law = words[at], type = words[at + 1], rate = tonumber(words[at + 2]), interval = tonumber(words[at + 3]) }
end

-- A bucket as it is stored.
function foreign.open(limiter, key, now)
  return foreign.read(key, limiter.law, limiter.type, now, limiter.rate, limiter.interval)
end

-- What is left, and when there will be more.
function foreign.tell(bucket)
  return math.min(math.max(0, bucket.rate - bucket.used), MOST_REMAINING), bucket.oldest and math.max(0, due_in(bucket, bucket.oldest)) or 0
end

-- Judges a request; writes nothing. A call is about one request, since charges are written as they are made.
function foreign.check(bucket, permits)
  local oldest = bucket.live > 0 and live_entry(bucket, 0) or {}
  bucket.oldest = tonumber(oldest[2])
  bucket.granted = permits == 0 or permits <= bucket.rate - bucket.used
  bucket.wait = bucket.granted and 0 or wait_for_permits(bucket, permits)
  return bucket.granted, bucket.wait
end

local function forget(bucket)
  if bucket.returned > 0 then redis.call('ZREMRANGEBYRANK', bucket.log, 0, bucket.returned - 1) end
end

-- Writes what the counter has to be. One that was not there would never expire by itself.
local function write_counter(bucket, rate)
  redis.call('SET', bucket.value, text(rate - bucket.stored), 'KEEPTTL')
  if bucket.counter then return end
  local left = redis.call('PTTL', bucket.hash)
  if left > 0 then redis.call('PEXPIRE', bucket.value, text(left)) end
end

-- Our rule into the hash. Java's keepAliveTime stays, unless it is none or would forget live permits.
local function configure_hash(bucket)
  local keep = bucket.keep_alive
  if not keep or (keep > 0 and keep < bucket.interval) then keep = 2 * bucket.interval end
  if bucket.rate ~= bucket.stored_rate or bucket.interval ~= bucket.stored_interval
    or bucket.type ~= bucket.stored_type or keep ~= bucket.keep_alive then
    redis.call('HSET', bucket.hash, 'rate', text(bucket.rate), 'interval', text(bucket.interval),
      'keepAliveTime', text(keep), 'type', bucket.type)
  end
  bucket.keep_alive = keep
end

local function expire_state(bucket, millis)
  redis.call('PEXPIRE', bucket.value, text(millis))
  redis.call('PEXPIRE', bucket.log, text(millis))
end

-- Expiry as Redisson has it, after grants and refusals alike: by keepAliveTime, else what is left to the hash.
local function expire_as_redisson(bucket)
  if bucket.keep_alive and bucket.keep_alive > 0 then
    redis.call('PEXPIRE', bucket.hash, text(bucket.keep_alive))
    return expire_state(bucket, bucket.keep_alive)
  end
  local left = redis.call('PTTL', bucket.hash)
  if left > 0 then expire_state(bucket, left) end
end

-- Expiry of the library, after a grant. Whatever becomes of the hash, no live permit is forgotten.
function foreign.keep_alive(bucket)
  if bucket.keep_alive and bucket.keep_alive > 0 then
    local keep = math.max(bucket.keep_alive, bucket.interval)
    redis.call('PEXPIRE', bucket.hash, text(keep))
    return expire_state(bucket, keep)
  end
  local left = redis.call('PTTL', bucket.hash)
  if left > 0 then expire_state(bucket, math.max(left, bucket.interval)) end
end

-- Expiry of the library, after a refusal: nothing lives longer for it than until the wait it was told is over.
local function outlast_wait(bucket)
  if not (bucket.keep_alive and bucket.keep_alive > 0 and bucket.wait > 0) then return end
  if redis.call('PTTL', bucket.hash) > bucket.wait then return end
  local keep = bucket.wait + bucket.interval
  redis.call('PEXPIRE', bucket.hash, text(keep))
  expire_state(bucket, keep)
end

-- 16 bytes that no other entry has: those of the call, or what follows from its 8 and the name of the log.
local function sixteen(bucket, random)
  if #random == 16 then return random end
  local digest = string.sub(redis.sha1hex(random .. bucket.log), 1, 32)
  return (string.gsub(digest, '%x%x', function(byte) return string.char(tonumber(byte, 16)) end))
end

-- In a log of our own, entries ahead of the clock are redated when it went back, as far as the bound allows.
local function redate_own(bucket, random)
  if bucket.separate then return end
  local last = redis.call('ZRANGE', bucket.log, -1, -1, 'WITHSCORES')
  bucket.newest, bucket.newest_at = last[1], tonumber(last[2])
  if not bucket.newest_at or bucket.newest_at <= bucket.now then return end
  if redis.call('ZCOUNT', bucket.log, '(' .. text(bucket.now), '+inf') > BOUND then return end
  redate(bucket, function(permits)
    local member = struct.pack('<Bc0I4', 16, string.reverse(random), permits)
    redis.call('ZADD', bucket.log, bucket.now, member)
    return member
  end)
end

-- What the newest entry holds if this grant joins it; only a log of our own merges entries.
local function held_by_newest(bucket)
  if bucket.separate or not bucket.newest_at or bucket.newest_at > bucket.now then return end
  return join_newest(bucket)
end

-- Removes what has returned, and makes the counter what it has to be; changes nothing that anybody could have taken.
function foreign.heal(bucket)
  forget(bucket)
  local rate = bucket.stored_rate
  local is_stale = bucket.returned > 0 or bucket.live > 0 or bucket.counter
  if rate and is_stale and bucket.counter ~= rate - bucket.stored then write_counter(bucket, rate) end
end

-- Takes what check() granted. An entry that is there already was granted before: the call was sent twice.
function foreign.charge(bucket, permits, random)
  if permits == 0 then return end
  random = sixteen(bucket, random)
  if redis.call('ZSCORE', bucket.log, struct.pack('<Bc0I4', 16, random, permits)) then return foreign.heal(bucket) end
  forget(bucket)
  redate_own(bucket, random)
  local joined = held_by_newest(bucket)
  redis.call('ZADD', bucket.log, bucket.now, struct.pack('<Bc0I4', 16, random, (joined or 0) + permits))
  if joined then redis.call('ZREM', bucket.log, bucket.newest) end
  bucket.used, bucket.stored = bucket.used + permits, bucket.stored + permits
  if bucket.law == 'configure' then configure_hash(bucket) end
  write_counter(bucket, bucket.rate)
  bucket.oldest = bucket.oldest or bucket.now
  if bucket.separate then expire_as_redisson(bucket) else foreign.keep_alive(bucket) end
end

-- After a refusal: what Redisson does then, and what a clock that went back leaves to do.
function foreign.settle(bucket, random)
  foreign.heal(bucket)
  redate_own(bucket, sixteen(bucket, random))
  if bucket.granted then return end
  if bucket.separate then expire_as_redisson(bucket) else outlast_wait(bucket) end
end

-- Takes permits out of the log, as if they had never been granted.
function foreign.give_back(limiter, key, permits, at, now)
  local bucket = foreign.open(limiter, key, now)
  if bucket.failure then return end
  if take_out(bucket, permits, at) then foreign.heal(bucket) end
end
