-- resets: adds a reset of an operator to the list that all gateways follow.
--
-- KEYS  a sorted set of texts by their times (ms)
-- ARGV  text, the maximal number of resets
--
-- Invariant: times strictly increase, so that a gateway that knows the resets up to a time misses none.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local newest = tonumber(redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]) or 0
redis.call('ZADD', KEYS[1], string.format('%.0f', math.max(now, newest + 1)), ARGV[1])
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -1 - ARGV[2])
