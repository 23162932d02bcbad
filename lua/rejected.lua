-- rejected: the clients that gateways reject most, in each minute.
--
-- KEYS  a hash of texts by gateway and minute; a sorted set of its fields by their minutes
-- ARGV  `put`, field, minute, text, the first minute to keep, the time to live of the keys (ms)
--       `read`, the first minute
-- Returns put: nothing; read: texts
--
-- Invariant: the sorted set and the hash have the same fields.

local texts, minutes = KEYS[1], KEYS[2]
local operations = {}

function operations.put(field, minute, text, first, ttl)
  for _, old in ipairs(redis.call('ZRANGEBYSCORE', minutes, '-inf', '(' .. first)) do
    redis.call('HDEL', texts, old)
    redis.call('ZREM', minutes, old)
  end
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
