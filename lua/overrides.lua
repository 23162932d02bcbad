-- overrides: the overrides of all gateways on this Redis: texts with an id and an end.
--
-- KEYS  a hash of the texts by id; a sorted set of the ids by their ends (ms); the version: a random text that changes
--       whenever the overrides change, so that gateways can recognize a change, a restored backup and lost data
-- ARGV  `put`, id, text, end (ms), new version, the maximal number of overrides, `1` to replace an override of this id
--       `remove`, id, new version
--       `read`
-- Returns put: `done`, `exists` or `full`; remove: the text, or false; read: now (ms), the version, or an empty text,
--       and ids and texts in turn
--
-- Invariant: the sorted set and the hash have the same ids. A write also removes the overrides that have ended.

local texts, ends, version = KEYS[1], KEYS[2], KEYS[3]
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))

local function remove(id)
  redis.call('HDEL', texts, id)
  redis.call('ZREM', ends, id)
end

local function remove_ended()
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', ends, '-inf', now)) do remove(id) end
end

local operations = {}

function operations.put(id, text, ends_at, new_version, max, replaces)
  remove_ended()
  local exists = redis.call('HGET', texts, id)
  if exists and replaces ~= '1' then return 'exists' end
  if not exists and redis.call('HLEN', texts) >= tonumber(max) then return 'full' end
  redis.call('HSET', texts, id, text)
  redis.call('ZADD', ends, ends_at, id)
  redis.call('SET', version, new_version)
  return 'done'
end

function operations.remove(id, new_version)
  remove_ended()
  local text = redis.call('HGET', texts, id)
  if text then
    remove(id)
    redis.call('SET', version, new_version)
  end
  return text
end

function operations.read()
  return { now, redis.call('GET', version) or '', redis.call('HGETALL', texts) }
end

return operations[ARGV[1]](unpack(ARGV, 2))
