-- rejected: the clients that gateways reject most, in each minute.
--
-- KEYS  a hash of texts by gateway and minute; a sorted set of its fields by their minutes
-- ARGV  `put`, field (`gateway:minute`), minute, text, the first minute of the gateway to keep, the time to live of the
--       keys (ms)
--       `read`, the first minute
-- Returns put: nothing; read: texts
--
-- Invariant: the sorted set and the hash have the same fields. The clocks of gateways can differ: by its own clock, a
-- gateway removes only its own minutes. All other old minutes are removed by the clock of Redis.

local texts, minutes = KEYS[1], KEYS[2]
local operations = {}

-- Removes the fields of these minutes that start with the prefix.
local function remove(from, to, prefix)
  for _, field in ipairs(redis.call('ZRANGEBYSCORE', minutes, from, to)) do
    if string.sub(field, 1, #prefix) == prefix then
      redis.call('HDEL', texts, field)
      redis.call('ZREM', minutes, field)
    end
  end
end

function operations.put(field, minute, text, first, ttl)
  local gateway = string.match(field, '^.*:')
  remove('-inf', '(' .. first, gateway)
  remove('(' .. minute, '+inf', gateway) -- the clock of the gateway was ahead
  local now = math.floor(redis.call('TIME')[1] / 60)
  remove('-inf', string.format('(%.0f', now - 17), '')
  redis.call('HSET', texts, field, text)
  redis.call('ZADD', minutes, minute, field)
  redis.call('PEXPIRE', texts, ttl)
  redis.call('PEXPIRE', minutes, ttl)
end

function operations.read(first)
  local found = {}
  for _, field in ipairs(redis.call('ZRANGEBYSCORE', minutes, first, '+inf')) do
    found[#found + 1] = redis.call('HGET', texts, field) or nil
  end
  return found
end

return operations[ARGV[1]](unpack(ARGV, 2))
