-- Changes the rate of a limiter as a Redisson client does with `updateRate` and `setRate`.
-- KEYS hash, value, client value, permits, client permits; ARGV rate, interval (ms), type, keepAliveTime (ms), the
-- client's clock (ms), 1 to keep permits in use
local old = redis.call('HGET', KEYS[1], 'type')
redis.call('HSET', KEYS[1], 'rate', ARGV[1], 'interval', ARGV[2], 'type', ARGV[3], 'keepAliveTime', ARGV[4])
if tonumber(ARGV[4]) > 0 then redis.call('PEXPIRE', KEYS[1], ARGV[4]) end
if old and old ~= ARGV[3] then return redis.call('DEL', KEYS[2], KEYS[3], KEYS[4], KEYS[5]) end
local value, log = KEYS[2], KEYS[4]
if ARGV[3] == '1' then value, log = KEYS[3], KEYS[5] end
if ARGV[6] ~= '1' then return redis.call('DEL', value, log) end
redis.call('ZREMRANGEBYSCORE', log, 0, tonumber(ARGV[5]) - tonumber(ARGV[2]))
local used = 0
for _, member in ipairs(redis.call('ZRANGE', log, 0, -1)) do
  local _, permits = struct.unpack('Bc0I', member)
  used = used + permits
end
redis.call('SET', value, math.max(0, tonumber(ARGV[1]) - used))
