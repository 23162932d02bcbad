-- redisson: a limiter shared with clients of Redisson. A permit comes back exactly one interval after it was granted. Peers
-- write the hash, the counter and the log too, by their own clocks.
--
-- KEYS  of a bucket: hash, value, value of the client, permits, permits of the client, as Redisson orders them; then our
--       note about the client's log. Without a client, its keys are those of all clients
-- ARGV  law: adopt (the hash says rate, interval and type), configure (we say them, and bring the hash up to date with the
--       first grant) or library (adopt, with expiry and log as tidegate::RateLimiter keeps them); type (0 OVERALL, 1
--       PER_CLIENT, empty: whichever the hash says), rate, interval (ms; both empty unless the law is configure)
-- Errors NOTINITIALISED if the hash lacks rate, interval or type; MODEDIFFERS if its type is another than was told
--
-- Invariant: the log is the truth, and after each call that writes, counter = rate - permits of all stored entries. A
-- counter below that has lost permits (Redisson sends calls twice) and is healed. One above it tells of a peer's
-- release(), which raises the counter alone: so many permits leave the log, and no release returns twice.
--
-- Bounded cost: a note tells what the log was after our last call. While its first entry is the first, all others are there,
-- and only what has come behind its last one is read. Else the log is read: all of up to 512 entries. Of more, the counter is
-- believed until all have returned, but never less than the 512 newest hold and one permit for each of the rest. A call removes
-- 512 entries that have returned; a request that the others may hold up is told to ask again at once.

local redisson = { keys = 6, args = 4 }

local call, min, max = redis.call, math.min, math.max
local BOUND = 512

-- The largest exact number, since rates of Java can be larger; the most permits that an entry can hold.
local MOST, MOST_IN_ENTRY = 9007199254740991, 4294967295

-- Permits of an entry in any format that Redisson has had: always the last four bytes.
local function permits_of(member)
  if #member < 4 then return 0 end
  return (from_bytes('<I4', member, #member - 3))
end

-- Entries by rank, oldest first, or newest first if the command is ZREVRANGE. Lists of entries have a score behind each.
local function entries(log, from, to, command)
  return call(command or 'ZRANGE', log.key, from, to, 'WITHSCORES')
end

-- The entry of a rank: its member and its score.
local function entry(log, rank)
  local list = entries(log, rank, rank)
  return list[1], tonumber(list[2])
end

-- The permits of a list of entries, as far as they are dated before a moment.
local function sum(list, before)
  local permits = 0
  for i = 1, #list, 2 do
    if not before or tonumber(list[i + 1]) < before then permits = permits + permits_of(list[i]) end
  end
  return permits
end

-- What a call knows of a log, and notes for the next: how many entries there are; what they hold, `sure` in those dated after
-- `doubt` and `believed` in the others, as the counter told it; the first and the newest, if they are known, and when they are
-- dated; the rate, and when it was noted. Of the log as it was found: whether it is as noted (`is_noted`), how many entries
-- were noted, whether all else is behind them (`follows`), whether peers have removed none (`is_whole`), and what it stored.
local NOTE, NOTE_BYTES = '<I4dddddddB', 61
local function read_note(key, note)
  -- All that most logs ever have, since a table that grows costs as much as a command.
  local log = {
    key = key, entries = 0, sure = 0, believed = 0, doubt = 0, rate = nil, at = 0, first = nil, first_at = nil, newest = nil,
    newest_at = nil, is_noted = nil, noted = nil, follows = nil, is_whole = nil, stored = nil,
  }
  if not note or #note < NOTE_BYTES then return log end
  local length
  log.entries, log.sure, log.believed, log.doubt, log.rate, log.at, log.first_at, log.newest_at, length = from_bytes(NOTE, note)
  log.first = string.sub(note, NOTE_BYTES + 1, NOTE_BYTES + length)
  log.newest = string.sub(note, NOTE_BYTES + length + 1)
  return log
end

-- Counts the permits of an added entry; negative for a removed one.
local function count(log, permits, at)
  if at > log.doubt then log.sure = log.sure + permits else log.believed = max(0, log.believed + permits) end
end

-- Adds an entry; returns false if it was there. Of entries of one moment it is not known which is first.
local function add(log, member, at)
  if call('ZADD', log.key, 'NX', at, member) == 0 then return false end
  if log.entries == 0 then log.first_at, log.newest_at = at + 1, at - 1 end
  count(log, permits_of(member), at)
  log.entries, log.is_noted = log.entries + 1, false
  if at < log.first_at then log.first, log.first_at = member, at elseif at == log.first_at then log.first = nil end
  if at > log.newest_at then log.newest, log.newest_at = member, at elseif at == log.newest_at then log.newest = nil end
  return true
end

-- Removes an entry.
local function remove(log, member, at)
  call('ZREM', log.key, member)
  count(log, -permits_of(member), at)
  log.entries, log.is_noted = log.entries - 1, false
  if member == log.first then log.first = nil end
  if member == log.newest then log.newest = nil end
end

-- Reads the hash into the limiter, as far as the law needs it; returns an error if it is invalid, and the note in it.
local function read_hash(limiter, key)
  local hash = call('HMGET', key, 'rate', 'interval', 'type', 'keepAliveTime', 'tidegate')
  local rate, kind = tonumber(hash[1]), hash[3]
  if rate and rate > MOST then rate = MOST end
  limiter.config, limiter.stored_rate = hash, rate
  if limiter.law ~= 'configure' then
    if not (rate and hash[2] and kind) then return 'NOTINITIALISED ' .. key end
    if limiter.told ~= '' and limiter.told ~= kind then return 'MODEDIFFERS ' .. key end
    limiter.rate, limiter.interval, limiter.type = rate, tonumber(hash[2]), kind
  end
  return nil, hash[5]
end

-- Counts so many new entries; returns whether all of them are behind the known ones.
local function follow(log, new)
  if new == 0 then return true end
  local list = new > 0 and new <= BOUND and entries(log, -1 - new, -1)
  if not list or list[1] ~= log.newest then return false end
  for i = 3, #list, 2 do count(log, permits_of(list[i]), tonumber(list[i + 1])) end
  log.entries, log.newest, log.newest_at = log.entries + new, list[#list - 1], tonumber(list[#list])
  return true
end

-- Reads the whole log of so many entries, or what there is to know of a longer one.
local function read_all(bucket, number)
  local log, counter, rate = bucket.log, bucket.counter, bucket.limiter.stored_rate
  local list = entries(log, -BOUND, -1)
  log.entries, log.newest, log.newest_at = number, list[#list - 1], tonumber(list[#list])
  log.sure, log.believed, log.doubt = sum(list), 0, 0
  if number <= BOUND then return end
  log.believed, log.sure = max(counter and rate and rate - counter or 0, log.sure + number - BOUND), 0
  log.doubt = max(bucket.now, log.newest_at)
end

-- Reads the entries that have returned, up to the bound, and the one behind them, which is the first then; returns the
-- former. Most often one has, or none: two are read at once.
local function read_returned(log, expired)
  if log.first and log.first_at > expired and call('ZRANGE', log.key, '0', '0')[1] == log.first then return {} end
  local list = entries(log, '0', '1')
  local first_at, second_at = tonumber(list[2]), tonumber(list[4])
  if second_at and second_at <= expired then
    list = call('ZRANGEBYSCORE', log.key, '-inf', expired, 'WITHSCORES', 'LIMIT', '0', '512')
    log.first, log.first_at = entry(log, #list / 2)
    return list
  elseif first_at and first_at <= expired then
    log.first, log.first_at = list[3], second_at
    return { list[1], list[2] }
  end
  log.first, log.first_at = list[1], first_at
  return {}
end

-- A bucket as it is stored, whatever peers have released; of the log only what the bound allows. `used` is what those entries
-- hold that have not returned, or, if more have returned than a call removes (`leaves_some`), may not have.
local function read(limiter, key, now)
  local failure, note = read_hash(limiter, KEYS[key])
  if failure then return { failure = failure } end
  local own = limiter.type == '1' and 1 or 0
  if own == 1 then note = call('GET', KEYS[key + 5]) end
  local value, log, expired = KEYS[key + 1 + own], read_note(KEYS[key + 3 + own], note), now - limiter.interval
  local number, first, first_at, list = call('ZCARD', log.key), log.first, log.first_at, read_returned(log, expired)
  local bucket = {
    limiter = limiter, key = key, now = now, value = value, counter = tonumber(call('GET', value)), log = log,
    returned = #list / 2, leaves_some = log.first and log.first_at <= expired, used = 0, wait = nil, added = nil, joined = nil,
    excess = nil,
  }
  log.noted = log.entries
  log.follows = log.noted > 0 and first == (list[1] or log.first) and follow(log, number - log.noted)
  log.is_noted = log.follows and number == log.noted
  -- Peers remove entries from the first on, those of one moment together.
  log.is_whole = first_at == (tonumber(list[2]) or log.first_at)
  if not log.follows then read_all(bucket, number) end
  log.stored = log.sure + log.believed
  for i = 1, #list, 2 do count(log, -permits_of(list[i]), tonumber(list[i + 1])) end
  if (log.first_at or math.huge) > log.doubt then log.believed, log.doubt = 0, 0 end
  bucket.used = log.sure + log.believed
  if bucket.leaves_some then
    local newest = entries(log, -BOUND, -1)
    if tonumber(newest[2]) <= expired then bucket.used = sum(newest) - sum(newest, expired + 1) end
  end
  return bucket
end

-- How many permits peers have released since our last call, as far as the counter tells. It tells nothing above the rate,
-- which no release() reaches; nor while it is believed itself; nor when it was made anew, or is the same as then under another
-- rate; nor below nothing if the rate is another, since Redisson then raises it to that.
local function released(bucket)
  local counter, rate, log = bucket.counter, bucket.limiter.stored_rate, bucket.log
  if not (counter and rate) or counter > rate or bucket.leaves_some then return 0 end
  if log.follows and counter == log.rate - log.stored or log.doubt > 0 and not log.follows then return 0 end
  local left = rate - log.stored
  return max(0, counter - (log.rate == rate and left or max(0, left)))
end

-- Writes the right counter. A new counter gets the time to live of the log.
local function write_counter(bucket, rate)
  local counter = rate - bucket.log.sure - bucket.log.believed + (bucket.excess or 0)
  if bucket.counter == counter then return end
  call('SET', bucket.value, text(counter), 'KEEPTTL')
  local left = bucket.counter and 0 or call('PTTL', bucket.log.key)
  if left > 0 then call('PEXPIRE', bucket.value, left) end
  bucket.counter = counter
end

-- Notes what the log is now, under the rate that the counter was written by. When it was looked at matters as long as
-- anything of it could be left; a note that tells the same is renewed in time.
local function write_note(bucket, rate)
  local log, limiter, now = bucket.log, bucket.limiter, bucket.now
  if log.is_noted and log.rate == rate and now >= log.at and now - log.at < limiter.interval / 2 then return end
  if not log.first then log.first, log.first_at = entry(log, 0) end
  if not log.newest then log.newest, log.newest_at = entry(log, -1) end
  local first, newest = log.first or '', log.newest or ''
  local note = to_bytes(NOTE, log.entries, log.sure, log.believed, log.doubt, rate, now, log.first_at or 0, log.newest_at or 0,
    #first) .. first .. newest
  if limiter.type == '1' then
    call('SET', KEYS[bucket.key + 5], note, 'PX', limiter.interval)
  else
    call('HSET', KEYS[bucket.key], 'tidegate', note)
  end
end

-- Removes what has returned.
local function forget(bucket)
  local log, returned = bucket.log, bucket.returned
  if returned == 0 then return end
  call('ZREMRANGEBYRANK', log.key, '0', returned - 1)
  log.entries, log.is_noted, bucket.returned = log.entries - returned, false, 0
  if log.entries == 0 then log.newest, log.newest_at = nil, nil end
end

-- In the library, makes one entry of now of those that are ahead of the clock, since it went back, as far as the bound allows;
-- returns it, if there is one.
local function redate(bucket)
  local log, now = bucket.log, bucket.now
  if bucket.limiter.law ~= 'library' or (log.newest_at or 0) <= now then return end
  local list = call('ZRANGEBYSCORE', log.key, '(' .. text(now), '+inf', 'WITHSCORES', 'LIMIT', '0', '513')
  if #list == 0 or #list > 2 * BOUND then return end
  local random, permits = text(now) .. string.sub(list[1], 2, 9), sum(list)
  local member = to_bytes('<Bc0I4', #random, random, permits)
  if permits > MOST_IN_ENTRY or not add(log, member, now) then return end
  for i = 1, #list, 2 do remove(log, list[i], tonumber(list[i + 1])) end
  return member
end

-- Removes what has returned, and corrects dates, counter and note; takes no live permit.
local function heal(bucket)
  local rate, log = bucket.limiter.stored_rate, bucket.log
  local is_used = log.entries > 0 or bucket.counter
  forget(bucket)
  redate(bucket)
  if rate and is_used then write_counter(bucket, rate) end
  if rate and (is_used or log.rate) then write_note(bucket, rate) end
end

-- Takes so many permits out of the live ones of a list of entries, in its order; returns how many are still to take.
local function take_out(bucket, list, permits)
  local log, expired = bucket.log, bucket.now - bucket.limiter.interval
  for i = 1, #list, 2 do
    local member, at = list[i], tonumber(list[i + 1])
    local held = permits_of(member)
    local part = at > expired and min(held, permits) or 0
    if part > 0 then
      -- Added before the other goes: an empty log would lose its time to live.
      if held > part then add(log, string.sub(member, 1, -5) .. to_bytes('<I4', held - part), at) end
      remove(log, member, at)
      permits = permits - part
    end
  end
  return permits
end

-- Takes what peers have released out of the log. The time of a release is unknown. Entries that were there at our last look are
-- taken first, the newest of them first, then those that have come since, the oldest first; or the oldest first of all, if
-- it is not known which those are: so that whatever was meant would not have returned earlier than what is taken for it.
-- What has returned meanwhile may be what was released; and so may what peers have removed, unless our last look is so
-- long ago that nothing of it could be left: then no more is taken than there still is of what was there.
local function place_release(bucket, permits)
  local log, looked_at = bucket.log, bucket.log.at
  local before = log.follows and max(0, log.noted - bucket.returned) or 0
  local is_missing = log.noted > 0 and looked_at > bucket.now - bucket.limiter.interval and not log.is_whole
  local returned_permits = log.stored - log.sure - log.believed
  forget(bucket)
  local since = log.entries - before
  local list = before > 0 and entries(log, since, since + min(before, BOUND) - 1, 'ZREVRANGE') or {}
  permits = take_out(bucket, list, permits)
  if before > BOUND then
    -- The rest stays on the counter for the next call.
    bucket.excess = permits
  else
    list = entries(log, 0, BOUND - 1)
    if is_missing then permits = min(permits, sum(list, looked_at)) end
    take_out(bucket, list, permits - returned_permits)
  end
end

-- What all buckets of a limiter share.
function redisson.limiter(words)
  local rate, interval = tonumber(words[3]), tonumber(words[4])
  return { law = words[1], told = words[2], type = words[2], rate = rate, interval = interval, stored_rate = nil, config = nil }
end

-- A bucket as it is stored, once what peers have released is out of it.
function redisson.open(limiter, key, now)
  local bucket = read(limiter, key, now)
  local permits = bucket.failure and 0 or released(bucket)
  if permits == 0 then return bucket end
  place_release(bucket, permits)
  heal(bucket)
  local excess = bucket.excess
  bucket = read(limiter, key, now)
  bucket.excess = excess
  return bucket
end

-- Milliseconds until an entry returns. In the library, what is dated ahead will be redated to now.
local function due_in(bucket, score)
  if bucket.limiter.law == 'library' then score = min(score, bucket.now) end
  return score + bucket.limiter.interval - bucket.now
end

-- Milliseconds until so many permits have returned. Beyond the bound every entry is taken to hold one.
local function wait_for(bucket, missing)
  local log, joined, rank = bucket.log, bucket.joined, bucket.returned
  if log.first ~= joined and missing <= permits_of(log.first or '') then return due_in(bucket, log.first_at) end
  local list = entries(log, rank, rank + BOUND - 1)
  for i = 1, #list, 2 do
    if list[i] == joined then return bucket.limiter.interval end
    missing = missing - permits_of(list[i])
    if missing <= 0 then return due_in(bucket, tonumber(list[i + 1])) end
  end
  local _, last_at = entry(log, rank + #list / 2 + missing - 1)
  return last_at and due_in(bucket, last_at) or bucket.limiter.interval
end

-- Checks a request; writes nothing. Who may be held up by what has returned or been released and is not removed yet asks
-- again at once; and so does who asks for more than fits into the entry of this call.
function redisson.check(bucket, permits)
  local rate, wait = bucket.limiter.rate, nil
  local missing = bucket.used + permits - rate
  if permits == 0 or missing <= 0 then
    if (bucket.added or 0) + permits > MOST_IN_ENTRY then wait = 0 end
  elseif permits > rate then
    wait = -1
  else
    wait = (bucket.excess or bucket.leaves_some) and 0 or wait_for(bucket, missing)
  end
  bucket.wait = wait
  return not wait, wait or 0
end

-- What is left, and when there will be more.
function redisson.tell(bucket)
  local remaining, log = bucket.limiter.rate - bucket.used, bucket.log
  local oldest = log.first and log.first ~= bucket.joined and log.first_at or bucket.added and bucket.now
  return min(max(0, remaining), MOST_IN_ENTRY), oldest and max(0, due_in(bucket, oldest)) or 0
end

-- The length of the slots of time whose grants share an entry: only in the library, where there would be more than BOUND.
local function slot_of(limiter)
  return limiter.law == 'library' and limiter.rate > BOUND and math.ceil(limiter.interval / (BOUND - 1)) or 1
end

-- Charges what check() granted, in memory; writes nothing. In the library it joins the entry of the same slot of time.
function redisson.charge(bucket, permits)
  local log, now, slot = bucket.log, bucket.now, slot_of(bucket.limiter)
  if slot > 1 and log.newest and log.newest_at >= now - now % slot and log.newest_at <= now then bucket.joined = log.newest end
  bucket.added, bucket.used = (bucket.added or 0) + permits, bucket.used + permits
end

-- Writes our rule into the hash. Java's keepAliveTime stays, unless it is none or would forget live permits.
local function configure_hash(limiter, key)
  local config, keep = limiter.config, tonumber(limiter.config[4])
  if not keep or (keep > 0 and keep < limiter.interval) then keep = 2 * limiter.interval end
  local rate, interval, kind, keep_text = text(limiter.rate), text(limiter.interval), limiter.type, text(keep)
  if config[1] ~= rate or config[2] ~= interval or config[3] ~= kind or config[4] ~= keep_text then
    call('HSET', key, 'rate', rate, 'interval', interval, 'keepAliveTime', keep_text, 'type', kind)
  end
  config[4] = keep_text
end

local function expire_state(bucket, millis)
  call('PEXPIRE', bucket.value, millis)
  call('PEXPIRE', bucket.log.key, millis)
end

-- Expiry as Redisson has it, after grants and refusals alike: by keepAliveTime, else what is left to the hash. In the
-- library no live permit is forgotten, whatever becomes of the hash; and a client's own state, which no other touches,
-- lives as long as its permits do.
local function keep_alive(bucket)
  local limiter, hash = bucket.limiter, KEYS[bucket.key]
  local keep, least = tonumber(limiter.config[4]) or 0, limiter.law == 'library' and limiter.interval or 0
  local left = keep > 0 and max(keep, least) or call('PTTL', hash)
  if keep > 0 then call('PEXPIRE', hash, left) end
  if least > 0 and limiter.type == '1' then left = max(least, bucket.log.newest_at + least - bucket.now) end
  if left > 0 then expire_state(bucket, max(left, least)) end
end

-- Writes one entry for what was charged in this call, as all of it was granted in one millisecond, in place of one that it
-- joins. One that is there already was granted before: the call was sent twice.
function redisson.save(bucket, random)
  local limiter, log, now = bucket.limiter, bucket.log, bucket.now
  forget(bucket)
  local joined = redate(bucket) or bucket.joined or ''
  local permits, joined_at = bucket.added + permits_of(joined), min(log.newest_at or now, now)
  if not add(log, to_bytes('<Bc0I4', 16, #random == 16 and random or random .. random, permits), now) then return heal(bucket) end
  if joined ~= '' then remove(log, joined, joined_at) end
  if limiter.law == 'configure' then configure_hash(limiter, KEYS[bucket.key]) end
  write_counter(bucket, limiter.rate)
  write_note(bucket, limiter.rate)
  keep_alive(bucket)
end

-- After a refusal: what Redisson does then. In the library nothing lives longer for it than until the wait that it was told
-- is over.
function redisson.settle(bucket)
  local limiter, hash, wait = bucket.limiter, KEYS[bucket.key], bucket.wait
  heal(bucket)
  if not wait then return end
  if limiter.law ~= 'library' then return keep_alive(bucket) end
  if wait <= 0 or (tonumber(limiter.config[4]) or 0) == 0 or call('PTTL', hash) > wait then return end
  call('PEXPIRE', hash, wait + limiter.interval)
  expire_state(bucket, wait + limiter.interval)
end

-- Takes permits out of the log, as if they had never been granted: of the entry that their grant made or joined, one that
-- holds just as many before one that holds more.
function redisson.give_back(limiter, key, permits, at, now)
  local bucket = redisson.open(limiter, key, now)
  if bucket.failure then return end
  local slot, best, best_held = slot_of(limiter), nil, math.huge
  at = at - at % slot
  local list = call('ZRANGEBYSCORE', bucket.log.key, max(at, now - limiter.interval + 1), at + slot - 1, 'WITHSCORES')
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
  local bucket = redisson.open({ law = 'library', told = '' }, 1, now)
  if bucket.failure then return redis.error_reply(bucket.failure) end
  forget(bucket)
  local put_back = permits - take_out(bucket, entries(bucket.log, 0, BOUND - 1, 'ZREVRANGE'), tonumber(permits))
  heal(bucket)
  if put_back > 0 then keep_alive(bucket) end
  return put_back
end

-- Gives a limiter its rate: how is try (only one that has none), set (whether it has one or not) or update (only one that
-- has one), usage keep or reset. Returns 1 if it was set, else 0. All four fields are there afterwards, or nothing has
-- changed. What is in use stays in use if it is kept, under the new rate; the state of an earlier life counts as far as it
-- has not returned. Another type is another bucket: then this client's state is dropped.
function redisson.set_rate(now, how, rate, interval, kind, keep, usage)
  local limiter, stored = { law = 'library', told = kind }, call('HMGET', KEYS[1], 'rate', 'interval', 'type')
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
  if bucket.log.entries > 0 then keep_alive(bucket) end
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
  local bucket = read({ law = 'library', told = '' }, 1, now)
  if bucket.failure then return 1 end
  expire_state(bucket, max(tonumber(millis), (bucket.log.newest_at or 0) + bucket.limiter.interval - now))
  return 1
end

algorithms.redisson = redisson
