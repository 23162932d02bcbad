-- overrides: the overrides of all gateways on this Redis: texts with an id and an end.
--
-- KEYS  a hash of the texts by id; a sorted set of the ids by their ends (ms); a sorted set of the ids of removed overrides
--       by the ends of their records (ms); a hash of the records by id: `REVISION END REMEMBERED`, where REVISION is the
--       time of the last change (ms) and REMEMBERED the latest end of all revisions (ms); the version: a random text that
--       changes whenever the overrides change, so that gateways can recognize a change, a restored backup and lost data
-- ARGV  `put`, id, text, end (ms), new version, the maximal number of overrides, `1` to replace an override of this id
--       `remove`, id, new version, the maximal number of removed overrides
--       `restore`, new version, the maximal number of each, then for each entry: id, revision, end, remembered, and the
--       text, or an empty text if it was removed
--       `read`
-- Returns put: `done`, `exists` or `full`; remove: the text, or false; restore: the numbers of restored overrides and of
--       restored removals; read: now (ms), the version, or an empty text, ids and texts in turn, ids and records in turn
--
-- Invariant: the first sorted set and the texts have the same ids, the second sorted set has the other ids of the records. A
-- revision only grows, and is kept while an earlier revision of its override could be in force. A write also removes some
-- of the overrides that have ended, so that no call is long.

local texts, ends, removed, records, version = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function text_of(number) return string.format('%.0f', number) end

local function record_of(id)
  local record = redis.call('HGET', records, id)
  local revision, ends_at, remembered = string.match(record or '', '^(%d+) (%d+) (%d+)$')
  return tonumber(revision or 0), tonumber(ends_at or 0), tonumber(remembered or 0)
end

-- Without a text, records a removal.
local function write(id, text, revision, ends_at, remembered)
  if text then
    redis.call('HSET', texts, id, text)
    redis.call('ZADD', ends, text_of(ends_at), id)
    redis.call('ZREM', removed, id)
  else
    redis.call('HDEL', texts, id)
    redis.call('ZREM', ends, id)
    redis.call('ZADD', removed, text_of(remembered), id)
  end
  redis.call('HSET', records, id, text_of(revision) .. ' ' .. text_of(ends_at) .. ' ' .. text_of(remembered))
end

local function forget(id)
  redis.call('HDEL', texts, id)
  redis.call('HDEL', records, id)
  redis.call('ZREM', ends, id)
  redis.call('ZREM', removed, id)
end

-- Returns the text of an override that has not ended, or false.
local function live_text(id)
  local ends_at = tonumber(redis.call('ZSCORE', ends, id) or 0)
  return ends_at > now and redis.call('HGET', texts, id)
end

local function count_live() return redis.call('ZCOUNT', ends, '(' .. text_of(now), '+inf') end

local function forget_ended()
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', ends, '-inf', text_of(now), 'LIMIT', 0, 500)) do
    local revision, ends_at, remembered = record_of(id)
    if remembered > now then write(id, nil, revision, ends_at, remembered) else forget(id) end
  end
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', removed, '-inf', text_of(now), 'LIMIT', 0, 500)) do
    -- Earlier versions of this script put overrides without a record.
    if redis.call('HEXISTS', texts, id) == 1 then redis.call('ZREM', removed, id) else forget(id) end
  end
end

-- Forgets the records that end first, if there are too many.
local function bound_removed(max)
  local excess = redis.call('ZCARD', removed) - tonumber(max)
  if excess <= 0 then return end
  for _, id in ipairs(redis.call('ZRANGE', removed, 0, excess - 1)) do forget(id) end
end

local operations = {}

function operations.put(id, text, ends_at, new_version, max, replaces)
  forget_ended()
  local exists = live_text(id)
  if exists and replaces ~= '1' then return 'exists' end
  if not exists and count_live() >= tonumber(max) then return 'full' end
  local revision, _, remembered = record_of(id)
  ends_at = tonumber(ends_at)
  write(id, text, math.max(now, revision + 1), ends_at, math.max(remembered, ends_at))
  redis.call('SET', version, new_version)
  return 'done'
end

function operations.remove(id, new_version, max)
  forget_ended()
  local text = live_text(id)
  if text then
    local revision, ends_at, remembered = record_of(id)
    write(id, nil, math.max(now, revision + 1), ends_at, remembered)
    bound_removed(max)
    redis.call('SET', version, new_version)
  end
  return text
end

function operations.restore(new_version, max, ...)
  forget_ended()
  local entries, overrides, removals = { ... }, 0, 0
  for i = 1, #entries, 5 do
    local id, text = entries[i], entries[i + 4]
    local revision, ends_at, remembered = tonumber(entries[i + 1]), tonumber(entries[i + 2]), tonumber(entries[i + 3])
    local is_live = text ~= '' and ends_at > now
    local has_room = not is_live or live_text(id) or count_live() < tonumber(max)
    local own, _, own_remembered = record_of(id)
    if remembered > now and revision > own and has_room then
      write(id, is_live and text or nil, revision, ends_at, math.max(remembered, own_remembered))
      if is_live then overrides = overrides + 1 else removals = removals + 1 end
    end
  end
  bound_removed(max)
  if overrides + removals > 0 then redis.call('SET', version, new_version) end
  return { overrides, removals }
end

function operations.read()
  local all = { redis.call('HGETALL', texts), redis.call('HGETALL', records) }
  return { text_of(now), redis.call('GET', version) or '', all[1], all[2] }
end

return operations[ARGV[1]](unpack(ARGV, 2))
