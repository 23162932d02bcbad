-- redisson: a limiter that clients of Redisson use too. A permit comes back exactly one interval after it was granted;
-- others write the hash, the counter and the log with us, by their own clocks.
--
-- KEYS  of a bucket: hash, value, value of the client, permits, permits of the client, as Redisson orders them; then a
--       note of ours about the client's log. Without a client, its keys are those of everybody
-- ARGV  law: adopt      the hash says rate, interval and type
--            configure  we say them, and bring the hash up to date with the first grant
--            library    adopt, with expiry and log as tidegate::RateLimiter keeps them
--       type (0 OVERALL, 1 PER_CLIENT, empty: whichever the hash says), rate, interval (ms; both empty unless the law
--       is configure)
-- Errors NOTINITIALISED if the hash lacks rate, interval or type; MODEDIFFERS if its type is another than was told
--
-- Invariant: the log is the truth, and after each call that writes, counter = rate - permits of all stored entries. A
-- counter below that has lost permits (Redisson sends calls twice) and is healed. One above it tells of a peer's
-- release(), which raises the counter alone: so many permits leave the log, and no release returns twice.
--
-- Bounded cost: the note tells what the log was after our last call: its entries and their permits, the first and the
-- last of them. While the first is the same and the last has the same rank, all that is new stands behind it, and nothing
-- else is read. Else peers have removed what had returned, or dated a grant before our last one, and the log is read: all
-- of up to 512 entries. Of more, the counter is believed until all of them have returned, but never less than the 512
-- newest entries hold and one permit for each of the rest. A call removes 512 entries that have returned; a request that
-- the others may hold up is told to ask again at once.

local redisson = { keys = 6, args = 4 }

local call = redis.call
local BOUND = 512

-- Rates of Java can be larger than numbers are exact, and sums larger than an entry holds.
local MOST, MOST_IN_ENTRY = 9007199254740991, 4294967295

-- Ranks and moments come again and again, and to make text of a number costs as much as a command: those that were made,
-- not without end.
local texts, texts_known, text_of = {}, 0, text
local function text(number)
  local known = texts[number]
  if known then return known end
  if texts_known == 2000 then texts, texts_known = {}, 0 end
  known, texts_known = text_of(number), texts_known + 1
  texts[number] = known
  return known
end

-- Permits of an entry in any format that Redisson has had: always the last four bytes.
local function permits_of(member)
  if #member < 4 then return 0 end
  return (struct.unpack('<I4', member, #member - 3))
end

-- The permits of a list of members with their scores.
local function sum(list)
  local permits = 0
  for i = 1, #list, 2 do permits = permits + permits_of(list[i]) end
  return permits
end

-- Entries by rank, with their scores.
local function entries(bucket, from, to)
  return call('ZRANGE', bucket.log, text(from), text(to), 'WITHSCORES')
end

-- Counts permits of an entry that was added, or removed if they are negative.
local function count(bucket, permits, at)
  bucket.stored = bucket.stored + permits
  if at > bucket.doubt then bucket.sure = bucket.sure + permits end
end

-- What our last call has noted: how many entries it left, and their permits; of those the permits of what is dated after
-- `doubt`, up to which the sum is what the counter told; the rate; when it looked; and the first and the newest entry. The
-- last one that was read is known, since refusals change nothing.
local known, known_as
local function recall(told)
  if told == known then return known_as end
  if not told or #told < 61 then return end
  local number, stored, sure, doubt, rate, at, first_at, newest_at, length = struct.unpack('<I4dddddddB', told)
  known, known_as = told, {
    entries = number, stored = stored, sure = sure, doubt = doubt, rate = rate, at = at, first_at = first_at,
    newest_at = newest_at, first = string.sub(told, 62, 61 + length), newest = string.sub(told, 62 + length),
  }
  return known_as
end

-- Reads the hash, as far as the law wants to know it; says what is wrong with it.
local function read_hash(bucket, told)
  local key = bucket.key
  local hash = call('HMGET', bucket.hash, 'rate', 'interval', 'type', 'keepAliveTime', 'tidegate')
  local rate, interval = tonumber(hash[1]), tonumber(hash[2])
  bucket.config, bucket.stored_rate = hash, rate and math.min(rate, MOST)
  if bucket.law ~= 'configure' then
    if not (rate and interval and hash[3]) then return 'NOTINITIALISED ' .. bucket.hash end
    if told ~= '' and told ~= hash[3] then return 'MODEDIFFERS ' .. bucket.hash end
    bucket.rate, bucket.interval, bucket.type = bucket.stored_rate, interval, hash[3]
  end
  local own = bucket.type == '1'
  bucket.value, bucket.log = KEYS[key + (own and 2 or 1)], KEYS[key + (own and 4 or 3)]
  if own then bucket.note = recall(call('GET', KEYS[key + 5])) else bucket.note = recall(hash[5]) end
end

-- Reads the entries that have returned, and the first that has not; returns the first of all.
local function read_returned(bucket)
  local expired, note = bucket.now - bucket.interval, bucket.note
  if note and note.first_at > expired and call('ZRANGE', bucket.log, '0', '0')[1] == note.first then
    bucket.first, bucket.first_at = note.first, note.first_at
    return note.first
  end
  local returned = call('ZRANGEBYSCORE', bucket.log, '-inf', text(expired), 'LIMIT', '0', text(BOUND))
  local head = entries(bucket, #returned, #returned)
  local permits = 0
  for _, member in ipairs(returned) do permits = permits + permits_of(member) end
  bucket.returned, bucket.returned_permits = #returned, permits
  if head[2] and tonumber(head[2]) <= expired then
    bucket.left_behind = call('ZCOUNT', bucket.log, '-inf', text(expired)) - #returned
    head = entries(bucket, #returned + bucket.left_behind, #returned + bucket.left_behind)
  end
  bucket.first, bucket.first_at = head[1], tonumber(head[2])
  return returned[1] or head[1]
end

-- Of what has returned, the permits of what is dated after `doubt`.
local function surely_returned(bucket)
  if bucket.doubt == 0 then return bucket.returned_permits end
  local permits, list = 0, bucket.returned > 0 and entries(bucket, 0, bucket.returned - 1) or {}
  for i = 1, #list, 2 do
    if tonumber(list[i + 1]) > bucket.doubt then permits = permits + permits_of(list[i]) end
  end
  return permits
end

-- Sums the log: by the note and what has come since, if nothing else has changed; else by reading it.
local function sum_up(bucket, first)
  local note, log, tail = bucket.note, bucket.log, nil
  -- Peers remove entries from the first on, those of one moment together: then none is gone.
  local same_first = note and (first == note.first or bucket.returned == 0 and bucket.first_at == note.first_at)
  bucket.is_whole = same_first and note.entries > 0
  if bucket.is_whole then
    tail = call('ZRANGE', log, text(note.entries - 1), text(note.entries + BOUND))
    if tail[1] == note.newest and #tail <= BOUND then
      bucket.follows, bucket.entries, bucket.stored, bucket.sure = true, note.entries + #tail - 1, note.stored, note.sure
      bucket.newest, bucket.newest_at = note.newest, note.newest_at
      if #tail == 1 then return end
      tail = entries(bucket, note.entries, -1)
      for i = 1, #tail, 2 do count(bucket, permits_of(tail[i]), tonumber(tail[i + 1])) end
      bucket.newest, bucket.newest_at = tail[#tail - 1], tonumber(tail[#tail])
      return
    end
  end
  bucket.entries, tail = call('ZCARD', log), entries(bucket, -BOUND, -1)
  bucket.newest, bucket.newest_at = tail[#tail - 1], tonumber(tail[#tail])
  bucket.stored, bucket.doubt = sum(tail), 0
  if bucket.entries <= BOUND then
    bucket.sure = bucket.stored
  else
    local told = bucket.counter and bucket.stored_rate and bucket.stored_rate - bucket.counter or 0
    bucket.stored, bucket.sure = math.max(told, bucket.stored + bucket.entries - BOUND), 0
    bucket.doubt, bucket.believed = math.max(bucket.now, bucket.newest_at), true
  end
end

-- A bucket as it is stored, whatever peers have released; of the log only what the bound allows. `stored` is what all
-- entries hold, `used` what has not returned of it.
local function read(limiter, key, now)
  -- All that most buckets ever have, since a table that grows costs as much as a command.
  local bucket = {
    key = key, hash = KEYS[key], value = nil, log = nil, law = limiter.law, now = now, type = limiter.type,
    rate = limiter.rate, interval = limiter.interval, config = nil, stored_rate = nil, note = nil, follows = nil,
    counter = nil, entries = 0, stored = 0, sure = 0, doubt = 0, used = 0, first = nil, first_at = nil, newest = nil,
    newest_at = nil, returned = 0, returned_permits = 0, left_behind = 0, live = 0, granted = nil, wait = 0, added = nil,
  }
  bucket.failure = read_hash(bucket, limiter.type)
  if bucket.failure then return bucket end
  bucket.counter = tonumber(call('GET', bucket.value))
  if bucket.note then bucket.doubt = bucket.note.doubt end
  sum_up(bucket, read_returned(bucket))
  bucket.live = bucket.entries - bucket.returned - bucket.left_behind
  if bucket.doubt > 0 and bucket.left_behind == 0 and (bucket.first_at or math.huge) > bucket.doubt then
    bucket.sure = bucket.sure - surely_returned(bucket) + bucket.returned_permits
    bucket.stored, bucket.doubt = bucket.sure, 0
  end
  bucket.used = bucket.stored - bucket.returned_permits
  if bucket.left_behind > 0 and bucket.live <= BOUND then
    bucket.used = sum(entries(bucket, bucket.entries - bucket.live, -1))
  end
  return bucket
end

-- How many permits peers have released since our last call, as far as the counter tells. It tells nothing above the rate,
-- which no release() reaches; nor when it was made anew, or is the same as then under another rate; nor below nothing if the
-- rate is another, since Redisson then raises it to that.
local function released(bucket)
  local counter, rate, note = bucket.counter, bucket.stored_rate, bucket.note
  if not (counter and rate) or counter > rate or bucket.left_behind > 0 or bucket.believed then return 0 end
  local left, same_rate = rate - bucket.stored, note and note.rate == rate
  if bucket.follows and not same_rate and counter == note.rate - bucket.stored then return 0 end
  return math.max(0, counter - (same_rate and left or math.max(0, left)))
end

-- Writes what the counter has to be. One that was not there would never expire by itself.
local function write_counter(bucket, rate)
  local counter = rate - bucket.stored + (bucket.excess or 0)
  if bucket.counter == counter then return end
  call('SET', bucket.value, text(counter), 'KEEPTTL')
  local is_ours = bucket.law == 'library' and bucket.type == '1'
  local left = bucket.counter and 0 or is_ours and bucket.interval or call('PTTL', bucket.hash)
  if left > 0 then call('PEXPIRE', bucket.value, text(left)) end
  bucket.counter = counter
end

-- Notes what the log is now, under the rate that the counter was written by. When it was looked at matters as long as
-- anything of it could be left; a note that tells the same is renewed in time.
local function write_note(bucket, rate)
  local note, now, last = bucket.note, bucket.now, nil
  if not bucket.newest then
    last = entries(bucket, -1, -1)
    bucket.newest, bucket.newest_at = last[1] or '', tonumber(last[2]) or 0
  end
  if not bucket.first then
    last = entries(bucket, 0, 0)
    bucket.first, bucket.first_at = last[1] or '', tonumber(last[2]) or 0
  end
  if note and note.entries == bucket.entries and note.stored == bucket.stored and note.newest == bucket.newest
    and note.first == bucket.first and note.doubt == bucket.doubt and note.rate == rate
    and now >= note.at and now - note.at < bucket.interval / 2 then return end
  local told = struct.pack('<I4dddddddB', bucket.entries, bucket.stored, bucket.sure, bucket.doubt, rate, now,
    bucket.first_at, bucket.newest_at, #bucket.first) .. bucket.first .. bucket.newest
  if bucket.type == '1' then
    call('SET', KEYS[bucket.key + 5], told, 'PX', text(bucket.interval))
  else
    call('HSET', bucket.hash, 'tidegate', told)
  end
end

-- Removes what has returned.
local function forget(bucket)
  if bucket.left_behind > 0 then bucket.first = nil end
  if bucket.returned == 0 then return end
  bucket.sure = bucket.sure - surely_returned(bucket)
  call('ZREMRANGEBYRANK', bucket.log, '0', text(bucket.returned - 1))
  bucket.entries, bucket.stored = bucket.entries - bucket.returned, bucket.stored - bucket.returned_permits
  bucket.returned, bucket.returned_permits = 0, 0
  if bucket.entries == 0 then bucket.newest, bucket.newest_at = nil, nil end
end

-- Removes what has returned, and makes counter and note what they have to be; takes no permit from anybody.
local function heal(bucket)
  local rate, is_used = bucket.stored_rate, bucket.entries > 0 or bucket.counter
  forget(bucket)
  if rate and is_used then write_counter(bucket, rate) end
  if rate and (is_used or bucket.note) then write_note(bucket, rate) end
end

-- Takes so many permits out of these entries, in their order or the other way round; returns how many they held of them.
local function take_out(bucket, list, permits, newest_first)
  local taken, from, to, step = 0, 1, #list - 1, 2
  if newest_first then from, to, step = to, from, -2 end
  for i = from, to, step do
    if taken == permits then break end
    local member, held = list[i], permits_of(list[i])
    local part = math.min(held, permits - taken)
    if part > 0 then
      -- Added before the other goes: an empty log would lose its time to live.
      if held > part then
        call('ZADD', bucket.log, list[i + 1], string.sub(member, 1, -5) .. struct.pack('<I4', held - part))
      end
      call('ZREM', bucket.log, member)
      taken, bucket.entries = taken + part, bucket.entries - (held > part and 0 or 1)
      count(bucket, -part, tonumber(list[i + 1]))
    end
  end
  bucket.newest, bucket.first = nil, nil
  return taken
end

-- Takes what peers have released out of the log. Nobody knows when they did. Entries that were there at our last look are
-- taken first, the newest of them first, then those that have come since, the oldest first; or the oldest first of all, if
-- it is not known which those are: so that whatever was meant would not have returned earlier than what is taken for it.
-- What has returned meanwhile may be what was released; and so may what peers have removed, unless our last look is so
-- long ago that nothing of it could be left: then no more is taken than there still is of what was there.
local function place_release(bucket, permits)
  local note, returned, returned_permits = bucket.note, bucket.returned, bucket.returned_permits
  local known = bucket.follows and math.max(0, note.entries - returned) or 0
  local is_missing = note and note.entries > 0 and note.at > bucket.now - bucket.interval and not bucket.is_whole
  forget(bucket)
  if known > 0 then
    permits = permits - take_out(bucket, entries(bucket, math.max(0, known - BOUND), known - 1), permits, true)
  end
  if known > BOUND then
    -- The rest stays on the counter for the next call.
    bucket.excess = permits
    return heal(bucket)
  end
  local list, left = entries(bucket, 0, BOUND - 1), 0
  for i = 1, #list, 2 do
    if tonumber(list[i + 1]) < (note and note.at or 0) then left = left + permits_of(list[i]) end
  end
  if is_missing then permits = math.min(permits, left) end
  take_out(bucket, list, math.max(0, permits - returned_permits))
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

-- Milliseconds until an entry returns. In the library, what is dated ahead counts as made now, since it will be redated;
-- elsewhere it is left as its writer dated it.
local function due_in(bucket, score)
  if bucket.law == 'library' then score = math.min(score, bucket.now) end
  return score + bucket.interval - bucket.now
end

-- The slot of time whose grants share an entry: only in the library, where there would be more than BOUND.
local function joins_newest(bucket)
  if bucket.law ~= 'library' or bucket.rate <= BOUND or bucket.live == 0 then return false end
  local slot = math.ceil(bucket.interval / (BOUND - 1))
  return bucket.newest_at >= bucket.now - bucket.now % slot
end

-- Milliseconds until so many permits have returned. Beyond the bound every entry is taken to hold one.
local function wait_for(bucket, missing)
  local first, joined = bucket.entries - bucket.live, bucket.joined
  local list = { bucket.first, bucket.first_at }
  if bucket.first and missing > permits_of(bucket.first) then list = entries(bucket, first, first + BOUND - 1) end
  for i = 1, #list, 2 do
    if list[i] == joined then return bucket.interval end
    missing = missing - permits_of(list[i])
    if missing <= 0 then return due_in(bucket, tonumber(list[i + 1])) end
  end
  local rank = first + #list / 2 + missing - 1
  local last = entries(bucket, rank, rank)
  return last[2] and due_in(bucket, tonumber(last[2])) or bucket.interval
end

-- Judges a request; writes nothing.
function redisson.check(bucket, permits)
  local missing = bucket.used + permits - bucket.rate
  bucket.granted, bucket.wait = permits == 0 or missing <= 0, 0
  if bucket.granted then
    -- One entry holds no more: the rest is asked for again at once.
    bucket.granted = (bucket.added or 0) + permits <= MOST_IN_ENTRY
  elseif permits > bucket.rate then
    bucket.wait = -1
  elseif (bucket.excess or 0) == 0 and (bucket.left_behind == 0 or bucket.live + permits > bucket.rate) then
    -- Else what holds it up may have returned or been released, and is not removed yet.
    bucket.wait = wait_for(bucket, missing)
  end
  return bucket.granted, bucket.wait
end

-- What is left, and when there will be more.
function redisson.tell(bucket)
  local remaining, oldest = math.min(math.max(0, bucket.rate - bucket.used), MOST_IN_ENTRY), bucket.first_at
  if bucket.added and (not bucket.first or bucket.first == bucket.joined) then oldest = bucket.now end
  return remaining, oldest and math.max(0, due_in(bucket, oldest)) or 0
end

-- Takes what check() granted; writes nothing.
function redisson.charge(bucket, permits)
  if permits == 0 then return end
  if not bucket.added and joins_newest(bucket) then bucket.joined = bucket.newest end
  bucket.added, bucket.used = (bucket.added or 0) + permits, bucket.used + permits
end

-- In the library, entries ahead of the clock become one of the present when it went back, as far as the bound allows.
local function redate(bucket, random)
  if bucket.law ~= 'library' or bucket.live == 0 or bucket.newest_at <= bucket.now then return end
  local ahead = '(' .. text(bucket.now)
  local list = call('ZRANGEBYSCORE', bucket.log, ahead, '+inf', 'WITHSCORES', 'LIMIT', '0', text(BOUND + 1))
  if #list > 2 * BOUND then return end
  local member = struct.pack('<Bc0I4', 16, string.reverse(random), sum(list))
  call('ZADD', bucket.log, bucket.now, member)
  call('ZREMRANGEBYSCORE', bucket.log, ahead, '+inf')
  bucket.entries = bucket.entries - #list / 2 + 1
  bucket.first, bucket.newest, bucket.newest_at = nil, member, bucket.now
  if bucket.doubt > 0 then bucket.sure, bucket.doubt = 0, bucket.now end
  if bucket.joined then bucket.joined = member end
end

-- Our rule into the hash. Java's keepAliveTime stays, unless it is none or would forget live permits.
local function configure_hash(bucket)
  local config, keep = bucket.config, tonumber(bucket.config[4] or nil)
  if not keep or (keep > 0 and keep < bucket.interval) then keep = 2 * bucket.interval end
  local rate, interval, keep_text = text(bucket.rate), text(bucket.interval), text(keep)
  if config[1] ~= rate or config[2] ~= interval or config[3] ~= bucket.type or config[4] ~= keep_text then
    call('HSET', bucket.hash, 'rate', rate, 'interval', interval, 'keepAliveTime', keep_text, 'type', bucket.type)
  end
  config[4] = keep_text
end

local function expire_state(bucket, millis)
  call('PEXPIRE', bucket.value, text(millis))
  call('PEXPIRE', bucket.log, text(millis))
end

-- Expiry as Redisson has it, after grants and refusals alike: by keepAliveTime, else what is left to the hash. In the
-- library no live permit is forgotten, whatever becomes of the hash; and a client's own state, which no other touches,
-- lives as long as its permits do.
local function keep_alive(bucket)
  local keep, least = tonumber(bucket.config[4] or 0), bucket.law == 'library' and bucket.interval or 0
  local left = keep > 0 and math.max(keep, least) or call('PTTL', bucket.hash)
  if keep > 0 then call('PEXPIRE', bucket.hash, text(left)) end
  if least > 0 and bucket.type == '1' then
    expire_state(bucket, math.max(least, bucket.newest_at + bucket.interval - bucket.now))
  elseif left > 0 then
    expire_state(bucket, math.max(left, least))
  end
end

-- Expiry of the library, after a refusal: nothing lives longer for it than until the wait it was told is over.
local function outlast_wait(bucket)
  if tonumber(bucket.config[4] or 0) == 0 or bucket.wait <= 0 then return end
  if call('PTTL', bucket.hash) > bucket.wait then return end
  local keep = bucket.wait + bucket.interval
  call('PEXPIRE', bucket.hash, text(keep))
  expire_state(bucket, keep)
end

-- 16 bytes that no other entry of the log has: those of the call, or its 8 twice.
local function sixteen(random)
  return #random == 16 and random or random .. random
end

-- Writes what was charged in this call: one entry, as all of it was granted in one millisecond. One that is there already
-- was granted before: the call was sent twice.
function redisson.save(bucket, random)
  local permits, now = bucket.added, bucket.now
  random = sixteen(random)
  forget(bucket)
  redate(bucket, random)
  local joined = bucket.joined and permits_of(bucket.joined) or 0
  permits = permits + joined
  local member = struct.pack('<Bc0I4', 16, random, permits)
  if call('ZADD', bucket.log, 'NX', text(now), member) == 0 then return heal(bucket) end
  bucket.entries = bucket.entries + 1
  count(bucket, permits, now)
  if bucket.joined then
    call('ZREM', bucket.log, bucket.joined)
    bucket.entries = bucket.entries - 1
    count(bucket, -joined, bucket.newest_at)
  end
  -- Of one millisecond, the order is that of the bytes.
  local at = bucket.newest_at or 0
  if bucket.joined or at < now then bucket.newest, bucket.newest_at = member, now elseif at == now then bucket.newest = nil end
  if bucket.entries == 1 then bucket.first, bucket.first_at = member, now end
  if bucket.entries > 1 and (bucket.joined or (bucket.first_at or 0) >= now) then bucket.first = nil end
  if bucket.law == 'configure' then configure_hash(bucket) end
  write_counter(bucket, bucket.rate)
  write_note(bucket, bucket.rate)
  keep_alive(bucket)
end

-- After a refusal: what Redisson does then, and what a clock that went back leaves to do.
function redisson.settle(bucket, random)
  forget(bucket)
  redate(bucket, sixteen(random))
  heal(bucket)
  if bucket.granted then return end
  if bucket.law == 'library' then outlast_wait(bucket) else keep_alive(bucket) end
end

-- Takes permits out of the log, as if they had never been granted: of the entry that their grant made or joined, one that
-- holds just as many before one that holds more.
function redisson.give_back(limiter, key, permits, at, now)
  local bucket = redisson.open(limiter, key, now)
  if bucket.failure then return end
  local last, best, best_held = at, nil, math.huge
  if limiter.law == 'library' and bucket.rate > BOUND then
    local slot = math.ceil(bucket.interval / (BOUND - 1))
    at = at - at % slot
    last = at + slot - 1
  end
  local list = call('ZRANGEBYSCORE', bucket.log, text(math.max(at, now - bucket.interval + 1)), text(last), 'WITHSCORES')
  for i = 1, #list, 2 do
    local held = permits_of(list[i])
    if held >= permits and held < best_held then best, best_held = i, held end
  end
  if not best or permits == 0 then return end
  take_out(bucket, { list[best], list[best + 1] }, permits)
  heal(bucket)
end

-- The operations of the library: each has the keys of one bucket, the time, and arguments of its own.

-- Puts permits back before they return by themselves, newest grants first; returns how many: fewer if fewer are in use, or
-- if the 512 newest entries hold fewer.
function redisson.release(now, permits)
  local bucket = redisson.open({ law = 'library', type = '' }, 1, now)
  if bucket.failure then return redis.error_reply(bucket.failure) end
  local list = bucket.live > 0 and entries(bucket, math.max(-BOUND, -bucket.live), -1) or {}
  local put_back = take_out(bucket, list, tonumber(permits), true)
  heal(bucket)
  if put_back > 0 then keep_alive(bucket) end
  return put_back
end

-- Gives a limiter its rate: how is try (only one that has none), set (whether it has one or not) or update (only one that
-- has one), usage keep or reset. Returns 1 if it was set, else 0. All four fields are there afterwards, or nothing has
-- changed. What is in use stays in use if it is kept, under the new rate; the state of an earlier life counts as far as it
-- has not returned. Another type is another bucket: then this client's state is dropped.
function redisson.set_rate(now, how, rate, interval, kind, keep, usage)
  local stored = call('HMGET', KEYS[1], 'rate', 'interval', 'type')
  local exists, own = stored[1] and stored[2] and stored[3], kind == '1' and 1 or 0
  if (how == 'try' and exists) or (how == 'update' and not exists) then return 0 end
  if stored[3] and stored[3] ~= kind then
    call('UNLINK', KEYS[2], KEYS[3], KEYS[4], KEYS[5])
  elseif usage == 'reset' then
    call('UNLINK', KEYS[2 + own], KEYS[4 + own])
  elseif exists then
    -- What peers have released is known by the rate that was.
    redisson.open({ law = 'library', type = kind }, 1, now)
  end
  call('HSET', KEYS[1], 'rate', rate, 'interval', interval, 'keepAliveTime', keep, 'type', kind)
  if tonumber(keep) > 0 then call('PEXPIRE', KEYS[1], keep) else call('PERSIST', KEYS[1]) end
  if own == 0 then call('PERSIST', KEYS[2]) call('PERSIST', KEYS[4]) end
  -- Peers believe the counter: it says at once what the log says under the new rate. What it said under none is nothing.
  local bucket = read({ law = 'library', type = kind }, 1, now)
  heal(bucket)
  if bucket.live > 0 then keep_alive(bucket) end
  return 1
end

-- Lets a limiter vanish after so many milliseconds, or never (empty). Returns 1 if it is there (and, for never, was going
-- to vanish), else 0. Permits in use outlive it until they have returned, so that one made again does not grant them twice.
function redisson.expire(now, millis)
  if millis == '' then
    local kept = call('PERSIST', KEYS[1])
    for i = 2, 5 do call('PERSIST', KEYS[i]) end
    return kept
  end
  if call('PEXPIRE', KEYS[1], millis) == 0 then return 0 end
  local interval = tonumber(call('HGET', KEYS[1], 'interval')) or 0
  for i = 2, 3 do
    local newest = tonumber(call('ZRANGE', KEYS[i + 2], '-1', '-1', 'WITHSCORES')[2]) or 0
    local keep = text(math.max(tonumber(millis), newest + interval - now))
    call('PEXPIRE', KEYS[i], keep)
    call('PEXPIRE', KEYS[i + 2], keep)
  end
  return 1
end

algorithms.redisson = redisson
