-- commands: what operators request from all gateways on this Redis, and what each gateway reports.
--
-- KEYS  put: a sorted set of commands by their ends (ms); report: a hash of the reports of one command by gateway
-- ARGV  `put`, command, its end (ms), the maximal number of commands
--       `report`, gateway, text, the time to live of the hash (ms), the maximal number of gateways
-- Returns put: 1, or 0 if there are too many commands; report: nothing
--
-- Invariant: a command is only text here: each gateway checks its signature and its end, and remembers what it executed.

local key, time = KEYS[1], redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
local operations = {}

function operations.put(command, ends_at, max)
  redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
  if redis.call('ZCARD', key) >= tonumber(max) then return 0 end
  redis.call('ZADD', key, ends_at, command)
  redis.call('PEXPIRE', key, math.max(1, tonumber(ends_at) - tonumber(now)))
  return 1
end

function operations.report(gateway, text, ttl, max)
  if redis.call('HLEN', key) < tonumber(max) then redis.call('HSET', key, gateway, text) end
  redis.call('PEXPIRE', key, ttl)
end

return operations[ARGV[1]](unpack(ARGV, 2))
