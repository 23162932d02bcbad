-- Releases permits as a Redisson client does: raises the counter and keeps the log.
-- KEYS hash, value, client value, permits, client permits; ARGV permits
local rate, kind = unpack(redis.call('HMGET', KEYS[1], 'rate', 'type'))
assert(rate and kind, 'RateLimiter is not initialized')
local value = kind == '1' and KEYS[3] or KEYS[2]
local counter = tonumber(redis.call('GET', value) or rate)
redis.call('SET', value, math.min(tonumber(rate), counter + tonumber(ARGV[1])))
