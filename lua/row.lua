-- row: decides requests in a row that ask for the same token buckets, of which nobody else in the call asks for any: all
-- of them at once, by the newest entries and what has just returned. Likewise the one bucket of a request that no other
-- asks for. It knows only the everyday case; whatever is not as it should be is left to token_bucket.lua, which knows all.
--
-- KEYS  those of token_bucket.lua
-- ARGV  those of token_bucket.lua
-- Returns nothing; it stands behind token_bucket.lua and algorithms.lua.
--
-- Invariant: what is granted here would be granted there, one request after the other, and is written alike. Nothing is
-- written before all buckets of the row are known to have room, and their counters are written first: one that does not
-- bear its seal out is found then, and all are put back as they were.

-- How many of the oldest entries are read to find those that have returned: mostly one has, and seldom more than a few.
local FEW, MORE = 3, 100

-- What is known of the bucket of each limit. They are no tables of their own, since one costs as much as a command; and
-- where Redis keeps functions, they are made once.
local limiter_of_limit, value_of, log_of, newest_of, held_by, written_at = {}, {}, {}, {}, {}, {}
local used_of, oldest_of, entries_of, returned_of, wanted_of, change_of = {}, {}, {}, {}, {}, {}
-- What is told of each limit: what remains, and when there will be more.
local left_of, reset_of = {}, {}

-- Is the rule the only one of late, as far as the hash tells? A bucket that has to be revived has all of it read, which
-- is then brought up to our rule.
local function is_alone(limiter, revive_it)
  if revive_it then
    recall(limiter)
    local config = limiter.config
    return not config[5] and (not config[2] or config[2] == limiter.interval_text)
  end
  local config = call('HMGET', limiter.hash, 'interval', 'retain')
  limiter.alone = config[1] == limiter.interval_text and not config[2]
  return limiter.alone
end

-- Of the entries that have returned: how many, what they hold, and when the oldest one that has not was granted. Their
-- seals tell when they were written, if they are ours. Nothing if that is not sure, or if they are very many.
local function returned_entries(i, log, limiter, stored, first, most)
  local entries, expired, sealed_rate = call('ZRANGE', log, '0', known_text(most - 1)), limiter.expired, limiter.sealed_rate
  local permits, at = 0, first
  entries_of[i] = entries
  for j = 1, #entries do
    local _, rate, written, held
    if #entries[j] ~= 21 then return end
    _, rate, written, _, held = unpack_bytes('>I4I3I6I3<I4', entries[j], 2)
    if rate ~= sealed_rate or written < at or (j == 1 and written ~= first) then return end
    if written > expired then return j - 1, permits, written end
    permits, at = permits + held, written
  end
  if permits == stored then return #entries, permits end
  if most == FEW then return returned_entries(i, log, limiter, stored, first, MORE) end
end

-- Puts back the counters of so many limits, the last of which does not bear its seal out.
local function put_back(limits)
  for i = 1, limits do
    if newest_of[i] then try('INCRBY', value_of[i], change_of[i]) end
  end
  -- One that was not there would never expire by itself.
  call('PEXPIRE', value_of[limits], known_text(2 * limiter_of_limit[limits].interval))
end

-- Removes what has returned, and the entry that was joined.
local function remove(i, joined)
  local log, entries, returned = log_of[i], entries_of[i], returned_of[i]
  if joined then
    returned = returned + 1
    entries[returned] = joined
  end
  if returned == 1 then call('ZREM', log, entries[1]) else call('ZREM', log, unpack(entries, 1, returned)) end
end

-- Writes what a bucket that has to be revived needs besides its entry.
local function revive_bucket(i, left)
  local limiter = limiter_of_limit[i]
  if not newest_of[i] then call('SET', value_of[i], known_text(left)) end
  if not limiter.configured then configure(limiter) end
  revive(limiter, value_of[i], log_of[i])
end

-- Grants as many of so many requests as there is room for, if all is as on every day; returns how many. What the first
-- limit is asked for is told, and that of the others from there on in the bytes. It is one function, since every call of
-- another would cost as much as what it is for.
local function take_all(plan, count, limits, number, wanted, bytes, at)
  local limiter_of, key_of, now, _ = plan.limiter_of, plan.key_of, nil, nil
  for i = 1, limits do
    if i > 1 then number, _, wanted, at = unpack_bytes('<I2BI4', bytes, at) end
    local limiter, key = limiter_of[number], key_of[number]
    local log = KEYS[key + 1]
    local newest = call('ZREVRANGE', log, '0', '0')[1]
    local used, oldest, written, returned, permits, rate, age = 0, nil, 0, 0, 0, nil, nil
    now = limiter.now
    if newest then
      if #newest ~= 21 then return 0 end
      used, rate, written, age, held_by[i] = unpack_bytes('>I4I3I6I3<I4', newest, 2)
      -- A counter of nothing could as well be none.
      if rate ~= limiter.sealed_rate or written > now or age >= TOO_OLD or used >= limiter.rate then return 0 end
      oldest = written - age
      if oldest <= limiter.expired then
        -- So many have returned together that they are better not read.
        if written <= limiter.expired and used > MORE then return 0 end
        returned, permits, oldest = returned_entries(i, log, limiter, used, oldest, FEW)
        if not returned then return 0 end
        used = used - permits
      end
    end
    local left, revive_it = limiter.rate - used, written < limiter.half_begins
    if wanted == 0 or wanted > left or not ((limiter.alone and not revive_it) or is_alone(limiter, revive_it)) then
      return 0
    end
    if count * wanted > left then count = floor(left / wanted) end
    limiter_of_limit[i], value_of[i], log_of[i], newest_of[i], written_at[i] = limiter, KEYS[key], log, newest, written
    used_of[i], oldest_of[i], returned_of[i], change_of[i], wanted_of[i] = used, oldest, returned, permits, wanted
  end
  for i = 1, limits do
    if newest_of[i] then
      local taken = count * wanted_of[i]
      local change = taken - change_of[i]
      change = texts[change] or known_text(change)
      change_of[i] = change
      if try('DECRBY', value_of[i], change) ~= limiter_of_limit[i].rate - used_of[i] - taken then
        put_back(i)
        return 0
      end
    end
  end
  for i = 1, limits do
    local limiter, log, newest, written, oldest = limiter_of_limit[i], log_of[i], newest_of[i], written_at[i], oldest_of[i]
    local rate, interval, used, joined, permits = limiter.rate, limiter.interval, used_of[i], nil, count * wanted_of[i]
    local taken = used + permits
    if oldest and rate > MAX_ENTRIES and written >= now - now % ceil(interval / (MAX_ENTRIES - 1)) then
      local held = held_by[i]
      joined, permits = newest, permits + held
      if used == held then oldest = now end
    elseif not oldest then
      oldest = now
    end
    local age, now_text = now - oldest, texts[now] or known_text(now)
    local member = pack('>BI4I3I6I3<I4', 16, taken, limiter.sealed_rate, now, age < TOO_OLD and age or TOO_OLD, permits)
    if call('ZADD', log, now_text, member) == 0 then add(log, now_text, member) end
    if returned_of[i] > 0 then remove(i, joined) elseif joined then call('ZREM', log, joined) end
    local left = rate - taken
    if written < limiter.half_begins then revive_bucket(i, left) end
    left_of[i], reset_of[i] = left, age > 0 and oldest - limiter.expired or interval
  end
  return count
end

-- Grants as many of so many requests in a row as it can; returns how many, and the answer to them.
function token_bucket.take_row(plan, count, limits, number, wanted, bytes, at)
  count = take_all(plan, count, limits, number, wanted, bytes, at)
  if count == 0 then return 0 end
  if limits == 2 then
    return count, pack('<I4BI4I6BI4I6', count, 1, left_of[1], reset_of[1], 1, left_of[2], reset_of[2])
  end
  local answer = pack('<I4BI4I6', count, 1, left_of[1], reset_of[1])
  for i = 2, limits do answer = answer .. pack('<BI4I6', 1, left_of[i], reset_of[i]) end
  return count, answer
end

-- The plan of a request that asks for one bucket.
local one = { limiter_of = {}, key_of = {} }

-- Judges the one request of a call that asks for a bucket, and charges it if it is granted and all others are `willing`.
-- Returns what check() and tell() do.
function token_bucket.take(limiter, key, permits, willing)
  one.limiter_of[1], one.key_of[1] = limiter, key
  if willing and take_all(one, 1, 1, 1, permits) == 1 then return true, 0, left_of[1], reset_of[1] end
  local bucket = token_bucket.open(limiter, key)
  local granted, wait = token_bucket.check(bucket, permits)
  if not (granted and willing) then
    token_bucket.settle(bucket)
  elseif permits > 0 then
    token_bucket.charge(bucket, permits)
    token_bucket.save(bucket)
  end
  return granted, wait, token_bucket.tell(bucket)
end
