-- redisson: a limiter shared with clients of Redisson (peers). A permit becomes available again exactly one interval
-- after it was granted. Peers also write the hash, the counter and the log, with their own clocks.
--
-- KEYS  of a bucket: hash, value, value of the client, permits, permits of the client, in Redisson's order; then the
--       note about the client's log. Without a client, the client's keys are the keys of all clients
-- ARGV  sharing: adopt (the hash defines rate, interval and type), configure (the caller defines them, and the first
--       grant updates the hash) or library (adopt, with the expiry and the log of tidegate::RateLimiter); type (0
--       OVERALL, 1 PER_CLIENT, empty: the type in the hash), rate, interval (ms; both empty unless sharing is
--       configure)
-- Errors NOTINITIALISED if the hash lacks rate, interval or type; MODEDIFFERS if its type differs from the given type
--
-- Invariant: the log is authoritative, and after each call that writes, counter = rate - permits of all stored entries.
-- A lower counter has lost permits (Redisson may send a call twice) and is corrected. A higher counter means that a
-- peer called release(), which only raises the counter: the same number of permits is removed from the log, once.
--
-- Bounded cost: a note describes the log after the last call of this script. While the noted first entry is still the
-- first, all other noted entries exist, and the call reads only entries after the noted last one. Otherwise it reads
-- the log, if it has at most 512 entries. In a longer log it relies on the counter until all entries have returned, but
-- assumes at least the permits of the 512 newest entries and one permit for each other. A call removes at most 512
-- returned entries; a request that other returned entries may block is asked to retry immediately.

local redisson = { keys = 6, args = 4 }

local call, min, max = redis.call, math.min, math.max
local BOUND = 512

-- The largest exact integer, since rates in Java can be larger; the maximal permits of an entry.
local MAX_EXACT, MAX_PER_ENTRY = 9007199254740991, 4294967295

-- Returns the permits of an entry. In all formats of Redisson these are the last four bytes.
local function permits_of(member)
  if #member < 4 then return 0 end
  return (from_bytes('<I4', member, #member - 3))
end

-- Returns entries by rank, oldest first, or newest first with ZREVRANGE. In lists of entries a score follows each
-- member.
local function entries(log, from, to, command)
  return call(command or 'ZRANGE', log.key, from, to, 'WITHSCORES')
end

-- Returns the member and the score of the entry with this rank.
local function entry(log, rank)
  local list = entries(log, rank, rank)
  return list[1], tonumber(list[2])
end

-- Sums up the permits of a list of entries; with `before`, only of entries dated earlier.
local function sum(list, before)
  local permits = 0
  for i = 1, #list, 2 do
    if not before or tonumber(list[i + 1]) < before then permits = permits + permits_of(list[i]) end
  end
  return permits
end

-- The state of a log, which the note stores for the next call: the number of entries; their permits, `counted` in
-- entries dated after `estimated_until`, and `estimated` from the counter in all others; the first and the newest entry
-- and their dates, if known; the rate, and the time of the note. The remaining fields describe the log when it was
-- read: whether it is unchanged (`is_noted`), the number of noted entries, whether all other entries come after them
-- (`follows`), whether peers have removed no entry (`is_whole`), and the permits that it stored.
local NOTE, NOTE_BYTES = '<I4dddddddB', 61
local function read_note(key, note)
  -- Allocates all fields that most logs use: growing a table costs as much as a command.
  local log = {
    key = key, entries = 0, counted = 0, estimated = 0, estimated_until = 0, rate = nil, at = 0, first = nil,
    first_at = nil, newest = nil, newest_at = nil, is_noted = nil, noted = nil, follows = nil, is_whole = nil, stored = nil,
  }
  if not note or #note < NOTE_BYTES then return log end
  local length
  log.entries, log.counted, log.estimated, log.estimated_until, log.rate, log.at, log.first_at, log.newest_at, length =
    from_bytes(NOTE, note)
  log.first = string.sub(note, NOTE_BYTES + 1, NOTE_BYTES + length)
  log.newest = string.sub(note, NOTE_BYTES + length + 1)
  return log
end

-- Counts the permits of an added entry; negative for a removed one.
local function count(log, permits, at)
  if at > log.estimated_until then
    log.counted = log.counted + permits
  else
    log.estimated = max(0, log.estimated + permits)
  end
end

-- Adds an entry; returns false if it exists. The order of entries with equal dates is unknown.
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

-- Reads the hash into the limiter; returns an error if the hash is invalid, and the note that it contains.
local function read_hash(limiter, key)
  local hash = call('HMGET', key, 'rate', 'interval', 'type', 'keepAliveTime', 'tidegate')
  local rate, kind = tonumber(hash[1]), hash[3]
  if rate and rate > MAX_EXACT then rate = MAX_EXACT end
  limiter.config, limiter.stored_rate = hash, rate
  if limiter.sharing ~= 'configure' then
    if not (rate and hash[2] and kind) then return 'NOTINITIALISED ' .. key end
    if limiter.expected_type ~= '' and limiter.expected_type ~= kind then return 'MODEDIFFERS ' .. key end
    limiter.rate, limiter.interval, limiter.type = rate, tonumber(hash[2]), kind
  end
  return nil, hash[5]
end

-- Counts `new` added entries; returns whether all of them come after the known entries.
local function follow(log, new)
  if new == 0 then return true end
  local list = new > 0 and new <= BOUND and entries(log, -1 - new, -1)
  if not list or list[1] ~= log.newest then return false end
  for i = 3, #list, 2 do count(log, permits_of(list[i]), tonumber(list[i + 1])) end
  log.entries, log.newest, log.newest_at = log.entries + new, list[#list - 1], tonumber(list[#list])
  return true
end

-- Reads a log of `number` entries, up to the bound; estimates the rest of a longer log.
local function read_all(bucket, number)
  local log, counter, rate = bucket.log, bucket.counter, bucket.limiter.stored_rate
  local list = entries(log, -BOUND, -1)
  log.entries, log.newest, log.newest_at = number, list[#list - 1], tonumber(list[#list])
  log.counted, log.estimated, log.estimated_until = sum(list), 0, 0
  if number <= BOUND then return end
  log.estimated, log.counted = max(counter and rate and rate - counter or 0, log.counted + number - BOUND), 0
  log.estimated_until = max(bucket.now, log.newest_at)
end

-- Returns the entries that have returned, up to the bound, and stores the entry after them as the first. It reads two
-- entries first, since usually at most one has returned.
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

-- Reads a bucket as it is stored, without regard to releases of peers, and at most BOUND entries of its log. `used`
-- counts the permits that have not returned; an upper bound if more entries have returned than a call removes
-- (`leaves_some`).
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
  -- Peers remove entries from the first one on, and all entries with equal dates together.
  log.is_whole = first_at == (tonumber(list[2]) or log.first_at)
  if not log.follows then read_all(bucket, number) end
  log.stored = log.counted + log.estimated
  for i = 1, #list, 2 do count(log, -permits_of(list[i]), tonumber(list[i + 1])) end
  if (log.first_at or math.huge) > log.estimated_until then log.estimated, log.estimated_until = 0, 0 end
  bucket.used = log.counted + log.estimated
  if bucket.leaves_some then
    local newest = entries(log, -BOUND, -1)
    if tonumber(newest[2]) <= expired then bucket.used = sum(newest) - sum(newest, expired + 1) end
  end
  return bucket
end

-- Returns the permits that peers have released since the last call, according to the counter. The counter is ignored if
-- it exceeds the rate, since no release() can do that; while the permits of the log are estimated from it; if it was
-- created again, or is unchanged under a changed rate. If the rate has changed, a deficit is ignored: Redisson raises
-- it to zero.
local function released(bucket)
  local counter, rate, log = bucket.counter, bucket.limiter.stored_rate, bucket.log
  if not (counter and rate) or counter > rate or bucket.leaves_some then return 0 end
  if log.follows and counter == log.rate - log.stored or log.estimated_until > 0 and not log.follows then return 0 end
  local left = rate - log.stored
  return max(0, counter - (log.rate == rate and left or max(0, left)))
end

-- Writes the correct counter. A new counter gets the time to live of the log.
local function write_counter(bucket, rate)
  local counter = rate - bucket.log.counted - bucket.log.estimated + (bucket.excess or 0)
  if bucket.counter == counter then return end
  call('SET', bucket.value, text(counter), 'KEEPTTL')
  local left = bucket.counter and 0 or call('PTTL', bucket.log.key)
  if left > 0 then call('PEXPIRE', bucket.value, left) end
  bucket.counter = counter
end

-- Writes the note about the present log and the rate by which the counter was written. The time of the note matters
-- while noted entries can still exist, so an unchanged note is renewed after half an interval.
local function write_note(bucket, rate)
  local log, limiter, now = bucket.log, bucket.limiter, bucket.now
  if log.is_noted and log.rate == rate and now >= log.at and now - log.at < limiter.interval / 2 then return end
  if not log.first then log.first, log.first_at = entry(log, 0) end
  if not log.newest then log.newest, log.newest_at = entry(log, -1) end
  local first, newest = log.first or '', log.newest or ''
  local note = to_bytes(NOTE, log.entries, log.counted, log.estimated, log.estimated_until, rate, now, log.first_at or 0,
    log.newest_at or 0, #first) .. first .. newest
  if limiter.type == '1' then
    call('SET', KEYS[bucket.key + 5], note, 'PX', limiter.interval)
  else
    call('HSET', KEYS[bucket.key], 'tidegate', note)
  end
end

-- Removes the entries that have returned.
local function forget(bucket)
  local log, returned = bucket.log, bucket.returned
  if returned == 0 then return end
  call('ZREMRANGEBYRANK', log.key, '0', returned - 1)
  log.entries, log.is_noted, bucket.returned = log.entries - returned, false, 0
  if log.entries == 0 then log.newest, log.newest_at = nil, nil end
end

-- With `library`, replaces entries dated in the future, since the clock went back, by one entry dated now, if the bound
-- allows it. Returns this entry, if any.
local function redate(bucket)
  local log, now = bucket.log, bucket.now
  if bucket.limiter.sharing ~= 'library' or (log.newest_at or 0) <= now then return end
  local list = call('ZRANGEBYSCORE', log.key, '(' .. text(now), '+inf', 'WITHSCORES', 'LIMIT', '0', '513')
  if #list == 0 or #list > 2 * BOUND then return end
  local random, permits = text(now) .. string.sub(list[1], 2, 9), sum(list)
  local member = to_bytes('<Bc0I4', #random, random, permits)
  if permits > MAX_PER_ENTRY or not add(log, member, now) then return end
  for i = 1, #list, 2 do remove(log, list[i], tonumber(list[i + 1])) end
  return member
end

-- Removes returned entries, and corrects dates, counter and note; does not remove permits in use.
local function repair(bucket)
  local rate, log = bucket.limiter.stored_rate, bucket.log
  local is_used = log.entries > 0 or bucket.counter
  forget(bucket)
  redate(bucket)
  if rate and is_used then write_counter(bucket, rate) end
  if rate and (is_used or log.rate) then write_note(bucket, rate) end
end

-- Removes permits in use from a list of entries, in its order; returns how many permits are still to be removed.
local function remove_permits(bucket, list, permits)
  local log, expired = bucket.log, bucket.now - bucket.limiter.interval
  for i = 1, #list, 2 do
    local member, at = list[i], tonumber(list[i + 1])
    local held = permits_of(member)
    local part = at > expired and min(held, permits) or 0
    if part > 0 then
      -- Adds the remainder before removing the entry: an empty log would lose its time to live.
      if held > part then add(log, string.sub(member, 1, -5) .. to_bytes('<I4', held - part), at) end
      remove(log, member, at)
      permits = permits - part
    end
  end
  return permits
end

-- Removes the permits that peers have released from the log. The time of a release is unknown, so the entries are
-- removed in an order that never frees permits too early: first entries that the last call noted, newest first, then
-- entries added since, oldest first. If the noted entries are unknown, the oldest of all entries come first. Permits
-- that have returned in the meantime count as released. So do permits that peers have removed, unless all noted entries
-- must have returned: then at most the permits that remain of the noted entries are removed.
local function place_release(bucket, permits)
  local log, noted_at = bucket.log, bucket.log.at
  local before = log.follows and max(0, log.noted - bucket.returned) or 0
  local is_missing = log.noted > 0 and noted_at > bucket.now - bucket.limiter.interval and not log.is_whole
  local returned_permits = log.stored - log.counted - log.estimated
  forget(bucket)
  local since = log.entries - before
  local list = before > 0 and entries(log, since, since + min(before, BOUND) - 1, 'ZREVRANGE') or {}
  permits = remove_permits(bucket, list, permits)
  if before > BOUND then
    -- The remaining permits stay on the counter for the next call.
    bucket.excess = permits
  else
    list = entries(log, 0, BOUND - 1)
    if is_missing then permits = min(permits, sum(list, noted_at)) end
    remove_permits(bucket, list, permits - returned_permits)
  end
end

-- Returns the data that all buckets of a limiter share.
function redisson.limiter(words)
  local rate, interval = tonumber(words[3]), tonumber(words[4])
  return {
    sharing = words[1], expected_type = words[2], type = words[2], rate = rate, interval = interval, stored_rate = nil,
    config = nil,
  }
end

-- Reads a bucket and removes the permits that peers have released.
function redisson.open(limiter, key, now)
  local bucket = read(limiter, key, now)
  local permits = bucket.failure and 0 or released(bucket)
  if permits == 0 then return bucket end
  place_release(bucket, permits)
  repair(bucket)
  local excess = bucket.excess
  bucket = read(limiter, key, now)
  bucket.excess = excess
  return bucket
end

-- Reads a bucket like open(), but writes nothing: permits that peers have released only count as free.
function redisson.peek(limiter, key, now)
  local bucket = read(limiter, key, now)
  if not bucket.failure then bucket.used = max(0, bucket.used - released(bucket)) end
  return bucket
end

-- Returns the milliseconds until an entry returns. With `library`, an entry dated in the future will be redated to now.
local function due_in(bucket, score)
  if bucket.limiter.sharing == 'library' then score = min(score, bucket.now) end
  return score + bucket.limiter.interval - bucket.now
end

-- Returns the milliseconds until `missing` permits have returned. Beyond the bound every entry counts as one permit.
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

-- Checks a request; writes nothing. Asks the caller to retry immediately (wait 0) if returned or released permits that
-- are not removed yet may block the request, or if its permits do not fit into the entry of this call.
function redisson.check(bucket, permits)
  local rate, wait = bucket.limiter.rate, nil
  local missing = bucket.used + permits - rate
  if permits == 0 or missing <= 0 then
    if (bucket.added or 0) + permits > MAX_PER_ENTRY then wait = 0 end
  elseif permits > rate then
    wait = -1
  else
    wait = (bucket.excess or bucket.leaves_some) and 0 or wait_for(bucket, missing)
  end
  bucket.wait = wait
  return not wait, wait or 0
end

-- Returns the remaining permits, and the time until more are available.
function redisson.status(bucket)
  local remaining, log = bucket.limiter.rate - bucket.used, bucket.log
  local oldest = log.first and log.first ~= bucket.joined and log.first_at or bucket.added and bucket.now
  return min(max(0, remaining), MAX_PER_ENTRY), oldest and max(0, due_in(bucket, oldest)) or 0
end

-- Returns the length of a merge step: grants within one step share an entry. Only for `library` and rates above BOUND.
local function merge_step_of(limiter)
  return limiter.sharing == 'library' and limiter.rate > BOUND and math.ceil(limiter.interval / (BOUND - 1)) or 1
end

-- Charges granted permits in memory; writes nothing. With `library` the charge joins the entry of the same merge step.
function redisson.charge(bucket, permits)
  local log, now, slot = bucket.log, bucket.now, merge_step_of(bucket.limiter)
  if slot > 1 and log.newest and log.newest_at >= now - now % slot and log.newest_at <= now then bucket.joined = log.newest end
  bucket.added, bucket.used = (bucket.added or 0) + permits, bucket.used + permits
end

-- Charges permits in any case, up to the bound of the entry. They return after one interval, even beyond the rate:
-- peers remove entries that have returned, so a bucket has no debt.
function redisson.charge_unconditionally(bucket, permits)
  redisson.charge(bucket, min(permits, MAX_PER_ENTRY - (bucket.added or 0)))
end

-- Writes the caller's rule into the hash. Keeps Java's keepAliveTime, unless it is missing or shorter than the
-- interval.
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

-- Sets the expiry as Redisson does, after grants and refusals: keepAliveTime, or else the time to live of the hash.
-- With `library` the state outlives all permits in use, even if the hash expires, and the state of a single client,
-- which no other client updates, lives as long as its permits.
local function keep_alive(bucket)
  local limiter, hash = bucket.limiter, KEYS[bucket.key]
  local keep, least = tonumber(limiter.config[4]) or 0, limiter.sharing == 'library' and limiter.interval or 0
  local left = keep > 0 and max(keep, least) or call('PTTL', hash)
  if keep > 0 then call('PEXPIRE', hash, left) end
  if least > 0 and limiter.type == '1' then left = max(least, bucket.log.newest_at + least - bucket.now) end
  if left > 0 then expire_state(bucket, max(left, least)) end
end

-- Writes one entry for all charges of this call, since they share one millisecond; it replaces the entry that it joins.
-- If the entry exists, the call was sent twice and was charged before.
function redisson.save(bucket, random)
  local limiter, log, now = bucket.limiter, bucket.log, bucket.now
  forget(bucket)
  local joined = redate(bucket) or bucket.joined or ''
  local permits, joined_at = bucket.added + permits_of(joined), min(log.newest_at or now, now)
  local member = to_bytes('<Bc0I4', 16, #random == 16 and random or random .. random, permits)
  if not add(log, member, now) then return repair(bucket) end
  if joined ~= '' then remove(log, joined, joined_at) end
  if limiter.sharing == 'configure' then configure_hash(limiter, KEYS[bucket.key]) end
  write_counter(bucket, limiter.rate)
  write_note(bucket, limiter.rate)
  keep_alive(bucket)
end

-- Runs after a refusal and does what Redisson does. With `library`, a refusal extends no key beyond the end of the wait
-- that it returned.
function redisson.on_refusal(bucket)
  local limiter, hash, wait = bucket.limiter, KEYS[bucket.key], bucket.wait
  repair(bucket)
  if not wait then return end
  if limiter.sharing ~= 'library' then return keep_alive(bucket) end
  if wait <= 0 or (tonumber(limiter.config[4]) or 0) == 0 or call('PTTL', hash) > wait then return end
  call('PEXPIRE', hash, wait + limiter.interval)
  expire_state(bucket, wait + limiter.interval)
end

-- Removes permits from the log, as if they had never been granted: from the smallest sufficient entry of their merge
-- step.
function redisson.give_back(limiter, key, permits, at, now)
  local bucket = redisson.open(limiter, key, now)
  if bucket.failure then return end
  local slot, best, best_held = merge_step_of(limiter), nil, math.huge
  at = at - at % slot
  local list = call('ZRANGEBYSCORE', bucket.log.key, max(at, now - limiter.interval + 1), at + slot - 1, 'WITHSCORES')
  for i = 1, #list, 2 do
    local held = permits_of(list[i])
    if held >= permits and held < best_held then best, best_held = { list[i], list[i + 1] }, held end
  end
  if not best then return end
  remove_permits(bucket, best, permits)
  repair(bucket)
end

-- The operations of the library: each gets the keys of one bucket, the time, and its own arguments.

-- Releases permits before they return, newest grants first. Returns the number of released permits, which is lower if
-- fewer permits are in use, or if the 512 newest entries hold fewer.
function redisson.release(now, permits)
  local bucket = redisson.open({ sharing = 'library', expected_type = '' }, 1, now)
  if bucket.failure then return redis.error_reply(bucket.failure) end
  forget(bucket)
  local put_back = permits - remove_permits(bucket, entries(bucket.log, 0, BOUND - 1, 'ZREVRANGE'), tonumber(permits))
  repair(bucket)
  if put_back > 0 then keep_alive(bucket) end
  return put_back
end

-- Sets the rate of a limiter. `how` is try (only if it has no rate), set (always) or update (only if it has a rate);
-- `usage` is keep or reset. Returns 1 if it set the rate, else 0. It writes all four fields or none. With keep, permits
-- in use stay in use under the new rate, including permits of an expired limiter. A new type means another bucket: this
-- client's state is dropped.
function redisson.set_rate(now, how, rate, interval, kind, keep, usage)
  local limiter, stored = { sharing = 'library', expected_type = kind }, call('HMGET', KEYS[1], 'rate', 'interval', 'type')
  local exists = stored[1] and stored[2] and stored[3]
  if (how == 'try' and exists) or (how == 'update' and not exists) then return 0 end
  if usage == 'reset' or stored[3] and stored[3] ~= kind then
    call('UNLINK', KEYS[2], KEYS[3], KEYS[4], KEYS[5])
  elseif exists then
    -- Detecting releases of peers needs the old rate.
    redisson.open(limiter, 1, now)
  end
  call('HSET', KEYS[1], 'rate', rate, 'interval', interval, 'keepAliveTime', keep, 'type', kind)
  if tonumber(keep) > 0 then call('PEXPIRE', KEYS[1], keep) else call('PERSIST', KEYS[1]) end
  if kind == '0' then call('PERSIST', KEYS[2]) call('PERSIST', KEYS[4]) end
  -- Peers rely on the counter, so it is updated immediately to match the log under the new rate.
  local bucket = read(limiter, 1, now)
  repair(bucket)
  if bucket.log.entries > 0 then keep_alive(bucket) end
  return 1
end

-- Makes a limiter expire after `millis` milliseconds, or never (empty). Returns 1 if the limiter exists (and, for
-- never, had an expiry), else 0. Permits in use outlive it until they return, so that a limiter created again does not
-- grant them twice.
function redisson.expire(now, millis)
  if millis == '' then
    local had_expiry = call('PERSIST', KEYS[1])
    for i = 2, 5 do call('PERSIST', KEYS[i]) end
    return had_expiry
  end
  if call('PEXPIRE', KEYS[1], millis) == 0 then return 0 end
  local bucket = read({ sharing = 'library', expected_type = '' }, 1, now)
  if bucket.failure then return 1 end
  expire_state(bucket, max(tonumber(millis), (bucket.log.newest_at or 0) + bucket.limiter.interval - now))
  return 1
end

algorithms.redisson = redisson
