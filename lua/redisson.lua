-- redisson: a limiter that clients of Redisson use too. A permit comes back exactly one interval after it was granted;
-- others write the hash, the counter and the log with us, by their own clocks.
--
-- KEYS  of a bucket: hash, value, value of the client, permits, permits of the client, as Redisson orders them; then our
--       note about the client's log. Without a client, its keys are those of everybody
-- ARGV  law: adopt (the hash says rate, interval and type), configure (we say them, and bring the hash up to date with the
--       first grant) or library (adopt, with expiry and log as tidegate::RateLimiter keeps them); type (0 OVERALL, 1
--       PER_CLIENT, empty: whichever the hash says), rate, interval (ms; both empty unless the law is configure)
-- Errors NOTINITIALISED if the hash lacks rate, interval or type; MODEDIFFERS if its type is another than was told
--
-- Invariant: the log is the truth, and after each call that writes, counter = rate - permits of all stored entries. A
-- counter below that has lost permits (Redisson sends calls twice) and is healed. One above it tells of a peer's
-- release(), which raises the counter alone: so many permits leave the log, and no release returns twice.
--
-- Bounded cost: the note tells what the log was after our last call. While its first entry is the first, all others are
-- there, and only what has come behind its last one is read; before the first one returns, a counter that says what the log
-- says proves that it is there. Else the log is read: all of up to 512 entries. Of more, the counter is believed until all
-- have returned, but never less than the 512 newest hold and one permit for each of the rest. A call removes 512 entries
-- that have returned; a request that the others may hold up is told to ask again at once.

local redisson = { keys = 6, args = 4 }

local call, min, max = redis.call, math.min, math.max
local BOUND = 512

-- Rates of Java can be larger than numbers are exact, and sums larger than an entry holds.
local MOST, MOST_IN_ENTRY = 9007199254740991, 4294967295

-- Redis makes text of numbers, which costs as much as a small command: of those that come again and again, it is made here.
local texts = {}
for number = -1 - BOUND, 2 * BOUND do texts[number] = text(number) end

-- Permits of an entry in any format that Redisson has had: always the last four bytes.
local function permits_of(member)
  if #member < 4 then return 0 end
  return (from_bytes('<I4', member, #member - 3))
end

-- Entries by rank, oldest first, or newest first if the command is ZREVRANGE. Lists of entries have a score behind each.
local function entries(bucket, from, to, command)
  return call(command or 'ZRANGE', bucket.log, texts[from] or from, texts[to] or to, 'WITHSCORES')
end

-- The permits of a list of entries, as far as they are dated before a moment.
local function sum(list, before)
  local permits = 0
  for i = 1, #list, 2 do
    if not before or tonumber(list[i + 1]) < before then permits = permits + permits_of(list[i]) end
  end
  return permits
end

-- Counts permits of an entry that has come, or gone if they are negative. What is dated up to `doubt` is only known as the
-- counter told it.
local function count(bucket, permits, at)
  if at > bucket.doubt then
    bucket.sure = bucket.sure + permits
  else
    bucket.believed = max(0, bucket.believed + permits)
  end
end

-- The note: how many entries our last call left, what they hold (sure, believed, doubt), the rate, when it looked, and the
-- first and the newest entry.
local NOTE, NOTE_BYTES = '<I4dddddddB', 61
local function recall(told)
  if not told or #told < NOTE_BYTES then return end
  local number, sure, believed, doubt, rate, at, first_at, newest_at, length = from_bytes(NOTE, told)
  local first, newest = string.sub(told, NOTE_BYTES + 1, NOTE_BYTES + length), string.sub(told, NOTE_BYTES + 1 + length)
  return {
    entries = number, sure = sure, believed = believed, doubt = doubt, rate = rate, at = at, first = first,
    first_at = first_at, newest = newest, newest_at = newest_at,
  }
end

-- Reads the hash, as far as the law wants to know it, counter and note; says what is wrong with the hash.
local function read_keys(bucket, told)
  local key, note = bucket.key, nil
  local hash = call('HMGET', KEYS[key], 'rate', 'interval', 'type', 'keepAliveTime', 'tidegate')
  local rate = tonumber(hash[1])
  bucket.config, bucket.stored_rate = hash, rate and min(rate, MOST)
  if bucket.law ~= 'configure' then
    if not (rate and hash[2] and hash[3]) then return 'NOTINITIALISED ' .. KEYS[key] end
    if told ~= '' and told ~= hash[3] then return 'MODEDIFFERS ' .. KEYS[key] end
    bucket.rate, bucket.interval, bucket.type = bucket.stored_rate, tonumber(hash[2]), hash[3]
  end
  local own = bucket.type == '1' and 1 or 0
  bucket.value, bucket.log, note = KEYS[key + 1 + own], KEYS[key + 3 + own], hash[5]
  bucket.counter = tonumber(call('GET', bucket.value))
  if own == 1 then note = call('GET', KEYS[key + 5]) end
  bucket.note = recall(note)
end

-- Takes over what the note says, and counts so many entries that are new; returns whether these stand behind the others.
local function follow(bucket, note, new)
  bucket.sure, bucket.believed, bucket.doubt = note.sure, note.believed, note.doubt
  bucket.newest, bucket.newest_at, bucket.is_noted = note.newest, note.newest_at, new == 0
  if new == 0 then return true end
  local list = new > 0 and new <= BOUND and entries(bucket, -1 - new, -1)
  if not list or list[1] ~= note.newest then return false end
  for i = 3, #list, 2 do count(bucket, permits_of(list[i]), tonumber(list[i + 1])) end
  bucket.newest, bucket.newest_at = list[#list - 1], tonumber(list[#list])
  return true
end

-- Reads the whole log, or what there is to know of a longer one.
local function read_all(bucket)
  local list = entries(bucket, -BOUND, -1)
  bucket.newest, bucket.newest_at, bucket.is_noted = list[#list - 1], tonumber(list[#list]), false
  bucket.sure, bucket.believed, bucket.doubt = sum(list), 0, 0
  if bucket.entries <= BOUND then return end
  local told = bucket.counter and bucket.stored_rate and bucket.stored_rate - bucket.counter or 0
  bucket.believed, bucket.sure = max(told, bucket.sure + bucket.entries - BOUND), 0
  bucket.doubt, bucket.believes = max(bucket.now, bucket.newest_at), true
end

-- Reads the entries that have returned, and the first one that has not; returns the former, without scores.
local function read_returned(bucket, expired)
  local list = call('ZRANGEBYSCORE', bucket.log, '-inf', expired, 'LIMIT', '0', '512')
  local first = entries(bucket, #list, #list)
  if first[2] and tonumber(first[2]) <= expired then
    bucket.left_behind = call('ZCOUNT', bucket.log, '-inf', expired) - BOUND
    first = entries(bucket, BOUND + bucket.left_behind, BOUND + bucket.left_behind)
  end
  bucket.returned, bucket.first, bucket.first_at = #list, first[1], tonumber(first[2])
  return list
end

-- A bucket as it is stored, whatever peers have released; of the log only what the bound allows. `stored` is what all
-- entries hold, `used` what those hold that have not returned.
local function read(limiter, key, now)
  -- All that most buckets ever have, since a table that grows costs as much as a command.
  local bucket = {
    key = key, law = limiter.law, now = now, type = limiter.type, rate = limiter.rate, interval = limiter.interval,
    value = nil, log = nil, config = nil, stored_rate = nil, note = nil, counter = nil, follows = nil, entries = 0,
    sure = 0, believed = 0, doubt = 0, stored = 0, used = 0, first = nil, first_at = nil, newest = nil, newest_at = nil,
    returned = 0, left_behind = 0, is_noted = false, is_whole = nil, granted = nil, wait = 0, added = nil,
  }
  local failure = read_keys(bucket, limiter.type)
  if failure then return { failure = failure } end
  local note, expired = bucket.note, now - bucket.interval
  bucket.entries = call('ZCARD', bucket.log)
  local follows = note and note.entries > 0 and follow(bucket, note, bucket.entries - note.entries)
  bucket.stored = bucket.sure + bucket.believed
  if follows and note.first_at > expired and note.rate == bucket.stored_rate
    and bucket.counter == note.rate - bucket.stored then
    bucket.first, bucket.first_at, bucket.used = note.first, note.first_at, bucket.stored
    return bucket
  end
  local list = read_returned(bucket, expired)
  local first = list[1] or bucket.first
  -- Peers remove entries from the first on, those of one moment together: then none is gone.
  bucket.is_whole = note and note.entries > 0
    and (first == note.first or #list == 0 and bucket.first_at == note.first_at)
  bucket.follows = follows and first == note.first
  if not bucket.follows then read_all(bucket) end
  bucket.stored = bucket.sure + bucket.believed
  local in_doubt = bucket.doubt > 0 and call('ZCOUNT', bucket.log, '-inf', bucket.doubt) or 0
  for i = 1, #list do count(bucket, -permits_of(list[i]), i > in_doubt and math.huge or 0) end
  if in_doubt <= #list then bucket.believed, bucket.doubt = 0, 0 end
  bucket.used = bucket.sure + bucket.believed
  if bucket.left_behind > 0 and bucket.entries - #list - bucket.left_behind <= BOUND then
    bucket.used = sum(entries(bucket, #list + bucket.left_behind, -1))
  end
  return bucket
end

-- How many permits peers have released since our last call, as far as the counter tells. It tells nothing above the rate,
-- which no release() reaches; nor when it was made anew, or is the same as then under another rate; nor below nothing if the
-- rate is another, since Redisson then raises it to that.
local function released(bucket)
  local counter, rate, note = bucket.counter, bucket.stored_rate, bucket.note
  if not (counter and rate) or counter > rate or bucket.left_behind > 0 or bucket.believes then return 0 end
  local left, same_rate = rate - bucket.stored, note and note.rate == rate
  if bucket.follows and not same_rate and counter == note.rate - bucket.stored then return 0 end
  return max(0, counter - (same_rate and left or max(0, left)))
end

-- Writes what the counter has to be. One that was not there lives as long as the log.
local function write_counter(bucket, rate)
  local counter = rate - bucket.sure - bucket.believed + (bucket.excess or 0)
  if bucket.counter == counter then return end
  call('SET', bucket.value, texts[counter] or counter, 'KEEPTTL')
  local left = bucket.counter and 0 or call('PTTL', bucket.log)
  if left > 0 then call('PEXPIRE', bucket.value, left) end
  bucket.counter = counter
end

-- Notes what the log is now, under the rate that the counter was written by. When it was looked at matters as long as
-- anything of it could be left; a note that tells the same is renewed in time.
local function write_note(bucket, rate)
  local note, now, first, newest = bucket.note, bucket.now, bucket.first, bucket.newest
  if bucket.is_noted and note.rate == rate and now >= note.at and now - note.at < bucket.interval / 2 then return end
  local from = first and { first, bucket.first_at } or entries(bucket, 0, 0)
  local to = newest and { newest, bucket.newest_at } or entries(bucket, -1, -1)
  first, newest, bucket.newest_at = from[1] or '', to[1] or '', tonumber(to[2]) or 0
  local told = to_bytes(NOTE, bucket.entries, bucket.sure, bucket.believed, bucket.doubt, rate, now, tonumber(from[2]) or 0,
    bucket.newest_at, #first) .. first .. newest
  if bucket.type == '1' then
    call('SET', KEYS[bucket.key + 5], told, 'PX', bucket.interval)
  else
    call('HSET', KEYS[bucket.key], 'tidegate', told)
  end
end

-- Removes what has returned.
local function forget(bucket)
  if bucket.left_behind > 0 then bucket.first = nil end
  if bucket.returned == 0 then return end
  call('ZREMRANGEBYRANK', bucket.log, '0', texts[bucket.returned - 1])
  bucket.entries, bucket.returned, bucket.is_noted = bucket.entries - bucket.returned, 0, false
  if bucket.entries == 0 then bucket.newest, bucket.newest_at = nil, nil end
end

-- Removes what has returned, and makes counter and note what they have to be; takes no permit from anybody.
local function heal(bucket)
  local rate, is_used = bucket.stored_rate, bucket.entries > 0 or bucket.counter
  forget(bucket)
  if rate and is_used then write_counter(bucket, rate) end
  if rate and (is_used or bucket.note) then write_note(bucket, rate) end
end

-- Takes so many permits out of a list of entries, in its order; returns how many are still to take.
local function take_out(bucket, list, permits)
  for i = 1, #list, 2 do
    local member, held = list[i], permits_of(list[i])
    local part = min(held, permits)
    if part > 0 then
      -- Added before the other goes: an empty log would lose its time to live.
      if held > part then
        call('ZADD', bucket.log, list[i + 1], string.sub(member, 1, -5) .. to_bytes('<I4', held - part))
      end
      call('ZREM', bucket.log, member)
      permits, bucket.entries = permits - part, bucket.entries - (held > part and 0 or 1)
      count(bucket, -part, tonumber(list[i + 1]))
    end
  end
  bucket.newest, bucket.first, bucket.is_noted = nil, nil, false
  return permits
end

-- Takes what peers have released out of the log. Nobody knows when they did. Entries that were there at our last look are
-- taken first, the newest of them first, then those that have come since, the oldest first; or the oldest first of all, if
-- it is not known which those are: so that whatever was meant would not have returned earlier than what is taken for it.
-- What has returned meanwhile may be what was released; and so may what peers have removed, unless our last look is so
-- long ago that nothing of it could be left: then no more is taken than there still is of what was there.
local function place_release(bucket, permits)
  local note, returned_permits = bucket.note, bucket.stored - bucket.sure - bucket.believed
  local before = bucket.follows and max(0, note.entries - bucket.returned) or 0
  local is_missing = note and note.entries > 0 and note.at > bucket.now - bucket.interval and not bucket.is_whole
  forget(bucket)
  local since = bucket.entries - before
  if before > 0 then permits = take_out(bucket, entries(bucket, since, since + min(before, BOUND) - 1, 'ZREVRANGE'), permits) end
  if before > BOUND then
    -- The rest stays on the counter for the next call.
    bucket.excess = permits
  else
    local list = entries(bucket, 0, BOUND - 1)
    if is_missing then permits = min(permits, sum(list, note.at)) end
    take_out(bucket, list, permits - returned_permits)
  end
  heal(bucket)
end

-- What the buckets of a limiter have in common.
function redisson.limiter(words)
  return { law = words[1], type = words[2], rate = tonumber(words[3]), interval = tonumber(words[4]) }
end

-- A bucket as it is stored, once what peers have released is out of it.
function redisson.open(limiter, key, now)
  local bucket = read(limiter, key, now)
  local permits = bucket.failure and 0 or released(bucket)
  if permits == 0 then return bucket end
  place_release(bucket, permits)
  local excess = bucket.excess
  bucket = read(limiter, key, now)
  bucket.excess = excess
  return bucket
end

-- Milliseconds until an entry returns. In the library, what is dated ahead counts as made now, since it will be joined;
-- elsewhere it is left as its writer dated it.
local function due_in(bucket, score)
  if bucket.law == 'library' then score = min(score, bucket.now) end
  return score + bucket.interval - bucket.now
end

-- Milliseconds until so many permits have returned. Beyond the bound every entry is taken to hold one.
local function wait_for(bucket, missing)
  if bucket.first and not bucket.joined and missing <= permits_of(bucket.first) then return due_in(bucket, bucket.first_at) end
  local rank = bucket.returned + bucket.left_behind
  local list = entries(bucket, rank, rank + BOUND - 1)
  for i = 1, #list, 2 do
    if bucket.joined and list[i] == bucket.joined[1] then return bucket.interval end
    missing = missing - permits_of(list[i])
    if missing <= 0 then return due_in(bucket, tonumber(list[i + 1])) end
  end
  rank = rank + #list / 2 + missing - 1
  local last = entries(bucket, rank, rank)
  return last[2] and due_in(bucket, tonumber(last[2])) or bucket.interval
end

-- Judges a request; writes nothing.
function redisson.check(bucket, permits)
  local missing, behind = bucket.used + permits - bucket.rate, bucket.left_behind
  bucket.granted, bucket.wait = permits == 0 or missing <= 0, 0
  if bucket.granted then
    -- One entry holds no more: the rest is asked for again at once.
    bucket.granted = (bucket.added or 0) + permits <= MOST_IN_ENTRY
  elseif permits > bucket.rate then
    bucket.wait = -1
  elseif not bucket.excess and (behind == 0 or bucket.entries - bucket.returned - behind + permits > bucket.rate) then
    -- Else what holds it up may have returned or been released, and is not removed yet.
    bucket.wait = wait_for(bucket, missing)
  end
  return bucket.granted, bucket.wait
end

-- What is left, and when there will be more.
function redisson.tell(bucket)
  local remaining, oldest = min(max(0, bucket.rate - bucket.used), MOST_IN_ENTRY), bucket.first_at
  if bucket.added and (not bucket.first or bucket.joined and bucket.first == bucket.joined[1]) then oldest = bucket.now end
  return remaining, oldest and max(0, due_in(bucket, oldest)) or 0
end

-- The length of the slots of time whose grants share an entry: only in the library, where there would be more than BOUND.
local function slot_of(bucket)
  return bucket.law == 'library' and bucket.rate > BOUND and math.ceil(bucket.interval / (BOUND - 1))
end

-- In the library, the entries that this call's own takes the place of: those ahead of the clock if it went back, as far as
-- the bound allows, or that of the same slot of time.
local function join(bucket)
  local now, newest_at, slot = bucket.now, bucket.newest_at, slot_of(bucket)
  if bucket.law ~= 'library' or not bucket.first then return end
  if newest_at > now then
    local list = call('ZRANGEBYSCORE', bucket.log, '(' .. text(now), '+inf', 'WITHSCORES', 'LIMIT', '0', '513')
    bucket.joined = #list <= 2 * BOUND and list or nil
  elseif slot and newest_at >= now - now % slot then
    bucket.joined = { bucket.newest, newest_at }
  end
end

-- Takes what check() granted; writes nothing.
function redisson.charge(bucket, permits)
  if permits == 0 then return end
  if not bucket.added then join(bucket) end
  bucket.added, bucket.used = (bucket.added or 0) + permits, bucket.used + permits
end

-- Our rule into the hash. Java's keepAliveTime stays, unless it is none or would forget live permits.
local function configure_hash(bucket)
  local config, keep = bucket.config, tonumber(bucket.config[4])
  if not keep or (keep > 0 and keep < bucket.interval) then keep = 2 * bucket.interval end
  local rate, interval, kind, keep_text = text(bucket.rate), text(bucket.interval), bucket.type, text(keep)
  if config[1] ~= rate or config[2] ~= interval or config[3] ~= kind or config[4] ~= keep_text then
    call('HSET', KEYS[bucket.key], 'rate', rate, 'interval', interval, 'keepAliveTime', keep_text, 'type', kind)
  end
  config[4] = keep_text
end

local function expire_state(bucket, millis)
  call('PEXPIRE', bucket.value, millis)
  call('PEXPIRE', bucket.log, millis)
end

-- Expiry as Redisson has it, after grants and refusals alike: by keepAliveTime, else what is left to the hash. In the
-- library no live permit is forgotten, whatever becomes of the hash; and a client's own state, which no other touches,
-- lives as long as its permits do.
local function keep_alive(bucket)
  local keep, least = tonumber(bucket.config[4]) or 0, bucket.law == 'library' and bucket.interval or 0
  local left = keep > 0 and max(keep, least) or call('PTTL', KEYS[bucket.key])
  if keep > 0 then call('PEXPIRE', KEYS[bucket.key], left) end
  if least > 0 and bucket.type == '1' then left = bucket.newest_at + bucket.interval - bucket.now end
  if left > 0 then expire_state(bucket, max(left, least)) end
end

-- Is a member behind another of the same moment? Redis compares their bytes.
local function is_after(one, other)
  for i = 1, #other do
    local byte, other_byte = string.byte(one, i), string.byte(other, i)
    if byte ~= other_byte then return byte > other_byte end
  end
  return true
end

-- Writes one entry for what was charged in this call, as all of it was granted in one millisecond, in place of those that it
-- joins. One that is there already was granted before: the call was sent twice.
local function write_entry(bucket, random)
  local now, joined, newest_at = bucket.now, bucket.joined or {}, bucket.newest_at or 0
  local permits = (bucket.added or 0) + sum(joined)
  local member = to_bytes('<Bc0I4', 16, #random == 16 and random or random .. random, permits)
  if call('ZADD', bucket.log, 'NX', now, member) == 0 then return false end
  for i = 1, #joined, 2 do
    call('ZREM', bucket.log, joined[i])
    count(bucket, -permits_of(joined[i]), tonumber(joined[i + 1]))
  end
  count(bucket, permits, now)
  bucket.entries, bucket.is_noted = bucket.entries + 1 - #joined / 2, false
  if #joined > 0 or newest_at < now or newest_at == now and is_after(member, bucket.newest) then
    bucket.newest, bucket.newest_at = member, now
  end
  if bucket.entries == 1 then
    bucket.first, bucket.first_at = member, now
  elseif (bucket.first_at or 0) >= now then
    bucket.first = nil
  end
  return true
end

-- Writes what was charged in this call.
function redisson.save(bucket, random)
  forget(bucket)
  if not write_entry(bucket, random) then return heal(bucket) end
  if bucket.law == 'configure' then configure_hash(bucket) end
  write_counter(bucket, bucket.rate)
  write_note(bucket, bucket.rate)
  keep_alive(bucket)
end

-- After a refusal: what Redisson does then, and what a clock that went back leaves to do. In the library nothing lives longer
-- for it than until the wait that it was told is over.
function redisson.settle(bucket, random)
  forget(bucket)
  if bucket.newest_at and bucket.newest_at > bucket.now then
    join(bucket)
    if bucket.joined then write_entry(bucket, random) end
  end
  heal(bucket)
  if bucket.granted then return end
  if bucket.law ~= 'library' then return keep_alive(bucket) end
  if bucket.wait <= 0 or (tonumber(bucket.config[4]) or 0) == 0 then return end
  if call('PTTL', KEYS[bucket.key]) > bucket.wait then return end
  call('PEXPIRE', KEYS[bucket.key], bucket.wait + bucket.interval)
  expire_state(bucket, bucket.wait + bucket.interval)
end

-- Takes permits out of the log, as if they had never been granted: of the entry that their grant made or joined, one that
-- holds just as many before one that holds more.
function redisson.give_back(limiter, key, permits, at, now)
  local bucket = redisson.open(limiter, key, now)
  if bucket.failure or permits == 0 then return end
  local slot, best, best_held = slot_of(bucket) or 1, nil, math.huge
  at = at - at % slot
  local list = call('ZRANGEBYSCORE', bucket.log, max(at, now - bucket.interval + 1), at + slot - 1, 'WITHSCORES')
  for i = 1, #list, 2 do
    local held = permits_of(list[i])
    if held >= permits and held < best_held then best, best_held = { list[i], list[i + 1] }, held end
  end
  if not best then return end
  take_out(bucket, best, permits)
  heal(bucket)
end

-- The operations of the library: each has the keys of one bucket, the time, and arguments of its own.

-- Puts permits back before they return by themselves, newest grants first; returns how many: fewer if fewer are in use, or
-- if the 512 newest entries hold fewer.
function redisson.release(now, permits)
  local bucket = redisson.open({ law = 'library', type = '' }, 1, now)
  if bucket.failure then return redis.error_reply(bucket.failure) end
  forget(bucket)
  local live = bucket.entries - bucket.left_behind
  local list = live > 0 and entries(bucket, 0, min(live, BOUND) - 1, 'ZREVRANGE') or {}
  local put_back = permits - take_out(bucket, list, tonumber(permits))
  heal(bucket)
  if put_back > 0 then keep_alive(bucket) end
  return put_back
end

-- Gives a limiter its rate: how is try (only one that has none), set (whether it has one or not) or update (only one that
-- has one), usage keep or reset. Returns 1 if it was set, else 0. All four fields are there afterwards, or nothing has
-- changed. What is in use stays in use if it is kept, under the new rate; the state of an earlier life counts as far as it
-- has not returned. Another type is another bucket: then this client's state is dropped.
function redisson.set_rate(now, how, rate, interval, kind, keep, usage)
  local limiter, stored = { law = 'library', type = kind }, call('HMGET', KEYS[1], 'rate', 'interval', 'type')
  local exists = stored[1] and stored[2] and stored[3]
  if (how == 'try' and exists) or (how == 'update' and not exists) then return 0 end
  if usage == 'reset' or stored[3] and stored[3] ~= kind then
    call('UNLINK', KEYS[2], KEYS[3], KEYS[4], KEYS[5])
  elseif exists then
    -- What peers have released is known by the rate that was.
    redisson.open(limiter, 1, now)
  end
  call('HSET', KEYS[1], 'rate', rate, 'interval', interval, 'keepAliveTime', keep, 'type', kind)
  if tonumber(keep) > 0 then call('PEXPIRE', KEYS[1], keep) else call('PERSIST', KEYS[1]) end
  if kind == '0' then call('PERSIST', KEYS[2]) call('PERSIST', KEYS[4]) end
  -- Peers believe the counter: it says at once what the log says under the new rate. What it said under none is nothing.
  local bucket = read(limiter, 1, now)
  heal(bucket)
  if bucket.entries > 0 then keep_alive(bucket) end
  return 1
end

-- Lets a limiter vanish after so many milliseconds, or never (empty). Returns 1 if it is there (and, for never, was going
-- to vanish), else 0. Permits in use outlive it until they have returned, so that one made again does not grant them twice.
function redisson.expire(now, millis)
  if millis == '' then
    local was_to_vanish = call('PERSIST', KEYS[1])
    for i = 2, 5 do call('PERSIST', KEYS[i]) end
    return was_to_vanish
  end
  if call('PEXPIRE', KEYS[1], millis) == 0 then return 0 end
  local bucket = read({ law = 'library', type = '' }, 1, now)
  if not bucket.failure then
    expire_state(bucket, max(tonumber(millis), (bucket.newest_at or 0) + bucket.interval - now))
  end
  return 1
end

algorithms.redisson = redisson
