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

-- What is known of the bucket of each limit, where there are several. They are no tables of their own, since one costs as
-- much as a command; and where Redis keeps functions, they are made once.
local limiter_of_limit, value_of, log_of, newest_of, held_by, written_at = {}, {}, {}, {}, {}, {}
local used_of, oldest_of, returned_of, dropped_of, wanted_of = {}, {}, {}, {}, {}
-- The oldest entries, where some of them have returned.
local entries_of = {}

-- Is the rule the only one of late, as far as the hash tells? A bucket that has to be revived has all of it read, which
-- is then brought up to our rule.
local function is_alone(limiter, revive_it)
  if revive_it then
    if limiter.revivable == nil then
      recall(limiter)
      local config = limiter.config
      limiter.revivable = not config[5] and (not config[2] or config[2] == limiter.interval_text)
    end
    return limiter.revivable
  end
  limiter.alone = call('HGET', limiter.hash, 'interval') == limiter.interval_text
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

-- What the newest entry says of a bucket: how many permits are in use, when the oldest entry that is was granted (nothing
-- if none is), when the newest was written, this, what it holds, how many entries have returned, and their permits. Nothing
-- if it is not as on every day.
local function look(i, limiter, log)
  local newest = call('ZREVRANGE', log, '0', '0')[1]
  if not newest then return 0, nil, 0, nil, 0, 0, 0 end
  if #newest ~= 21 then return end
  local stored, rate, written, age, held = unpack_bytes('>I4I3I6I3<I4', newest, 2)
  -- A counter of nothing could as well be none.
  if rate ~= limiter.sealed_rate or written > limiter.now or age >= TOO_OLD or stored >= limiter.rate then return end
  local oldest = written - age
  if oldest > limiter.expired then return stored, oldest, written, newest, held, 0, 0 end
  -- So many have returned together that they are better not read.
  if written <= limiter.expired and stored > MORE then return end
  local returned, dropped, first = returned_entries(i, log, limiter, stored, oldest, FEW)
  if returned then return stored - dropped, first, written, newest, held, returned, dropped end
end

-- Has the bucket room for so many permits, and may it be judged here?
local function has_room(limiter, used, written, wanted)
  if not used or wanted == 0 or used + wanted > limiter.rate then return false end
  local revive_it = written < limiter.half_begins
  return limiter.alone and not revive_it or is_alone(limiter, revive_it)
end

-- Takes permits from the counter, of which so many should be left then; else puts them back.
local function takes(limiter, value, permits, left)
  local change = texts[permits] or known_text(permits)
  if try('DECRBY', value, change) == left then return true end
  try('INCRBY', value, change)
  -- One that was not there would never expire by itself.
  call('PEXPIRE', value, known_text(2 * limiter.interval))
  return false
end

-- Removes what has returned, and the entry that was joined.
local function remove(log, entries, returned, joined)
  if joined then
    returned = returned + 1
    entries[returned] = joined
  end
  if returned == 1 then call('ZREM', log, entries[1]) else call('ZREM', log, unpack(entries, 1, returned)) end
end

-- Writes what a bucket that has to be revived needs besides its entry. A new one has no counter yet.
local function revive_bucket(limiter, value, log, newest, left)
  if not limiter.configured then configure(limiter) end
  if newest then return revive(limiter, value, log) end
  local keep = known_text(2 * limiter.interval)
  call('SET', value, known_text(left), 'PX', keep)
  call('PEXPIRE', log, keep)
  if not limiter.revived then call('PEXPIRE', limiter.hash, keep) end
  limiter.revived = true
end

-- Writes what was taken, but for a counter that is there; returns what remains, and when there will be more.
local function write(i, limiter, value, log, permits, used, oldest, written, newest, held, returned)
  local now, taken, joined, member = limiter.now, used + permits, nil, nil
  if oldest and written >= limiter.slot_begins then
    joined, permits = newest, permits + held
    if used == held then oldest = now end
  end
  local age = oldest and now - oldest or 0
  member = pack('>BI4I3I6I3<I4', 16, taken, limiter.sealed_rate, now, age < TOO_OLD and age or TOO_OLD, permits)
  if call('ZADD', log, limiter.text_of_now, member) == 0 then add(log, limiter.text_of_now, member) end
  if returned > 0 then
    remove(log, entries_of[i], returned, joined)
  elseif joined then
    call('ZREM', log, joined)
  end
  local left = limiter.rate - taken
  if written < limiter.half_begins then revive_bucket(limiter, value, log, newest, left) end
  return left, age > 0 and limiter.interval - age or limiter.interval
end

-- Grants as many of so many requests for a bucket as there is room for, if all is as on every day; returns how many, what
-- remains, and when there will be more.
function token_bucket.take_one(limiter, key, count, wanted)
  local value, log = KEYS[key], KEYS[key + 1]
  local used, oldest, written, newest, held, returned, dropped = look(1, limiter, log)
  if not has_room(limiter, used, written, wanted) then return 0 end
  local permits = wanted
  if count > 1 then
    count = math.min(count, floor((limiter.rate - used) / wanted))
    permits = count * wanted
  end
  if newest and not takes(limiter, value, permits - dropped, limiter.rate - used - permits) then return 0 end
  return count, write(1, limiter, value, log, permits, used, oldest, written, newest, held, returned)
end

-- The same for several buckets, each of which is asked for so many permits.
local function take_all(limits, count)
  for i = 1, limits do
    local limiter, wanted, used, written = limiter_of_limit[i], wanted_of[i], nil, nil
    used, oldest_of[i], written, newest_of[i], held_by[i], returned_of[i], dropped_of[i] = look(i, limiter, log_of[i])
    if not has_room(limiter, used, written, wanted) then return 0 end
    if count > 1 then count = math.min(count, floor((limiter.rate - used) / wanted)) end
    used_of[i], written_at[i] = used, written
  end
  for i = 1, limits do
    local limiter, permits = limiter_of_limit[i], count * wanted_of[i]
    if newest_of[i] and not takes(limiter, value_of[i], permits - dropped_of[i], limiter.rate - used_of[i] - permits) then
      for j = 1, i - 1 do
        if newest_of[j] then call('INCRBY', value_of[j], known_text(count * wanted_of[j] - dropped_of[j])) end
      end
      return 0
    end
  end
  return count
end

local function write_row(i, count)
  return write(i, limiter_of_limit[i], value_of[i], log_of[i], count * wanted_of[i], used_of[i], oldest_of[i],
    written_at[i], newest_of[i], held_by[i], returned_of[i])
end

-- Grants as many of so many requests in a row as it can; returns how many, and the answer to them. What each limit is asked
-- for is told from there on in the bytes, as it is for the first of a run: this one is so many steps into it.
function token_bucket.take_row(plan, count, limits, bytes, at, step)
  local limiter_of, key_of, number, wanted, answer, _ = plan.limiter_of, plan.key_of, nil, nil, nil, nil
  for i = 1, limits do
    number, _, wanted, at = unpack_bytes('<I2BI4', bytes, at)
    local key = key_of[number + step]
    limiter_of_limit[i], value_of[i], log_of[i], wanted_of[i] = limiter_of[number], KEYS[key], KEYS[key + 1], wanted
  end
  count = take_all(limits, count)
  if count == 0 then return 0 end
  local left, reset = write_row(1, count)
  if limits == 2 then
    local left_too, reset_too = write_row(2, count)
    return count, pack('<I4BI4I6BI4I6', count, 1, left, reset, 1, left_too, reset_too)
  end
  answer = pack('<I4BI4I6', count, 1, left, reset)
  for i = 2, limits do answer = answer .. pack('<BI4I6', 1, write_row(i, count)) end
  return count, answer
end

-- Judges the one request of a call that asks for a bucket, and charges it if it is granted and all others are `willing`.
-- Returns what check() and tell() do.
function token_bucket.take(limiter, key, permits, willing)
  if willing then
    local count, left, reset = token_bucket.take_one(limiter, key, 1, permits)
    if count == 1 then return true, 0, left, reset end
  end
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
