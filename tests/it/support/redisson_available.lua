-- Counts permits as a Redisson client does: frees expired ones without a cap, and sets no time to live.
-- KEYS hash, value, client value, permits, client permits; ARGV the client's clock (ms)
local rate, interval, kind = unpack(redis.call('HMGET', KEYS[1], 'rate', 'interval', 'type'))
assert(rate and interval and kind, 'RateLimiter is not initialized')
local value, log = KEYS[2], KEYS[4]
if kind == '1' then value, log = KEYS[3], KEYS[5] end
local counter = redis.call('GET', value)
if not counter then
  redis.call('SET', value, rate)
  return rate
end
local edge = tonumber(ARGV[1]) - tonumber(interval)
local expired = 0
for _, member in ipairs(redis.call('ZRANGEBYSCORE', log, 0, edge)) do
  local _, permits = struct.unpack('Bc0I', member)
  expired = expired + permits
end
if expired == 0 then return counter end
redis.call('ZREMRANGEBYSCORE', log, 0, edge)
redis.call('SET', value, tonumber(counter) + expired)
return tonumber(counter) + expired
