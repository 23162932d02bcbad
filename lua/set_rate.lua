-- set_rate: gives a limiter its rate.
--
-- KEYS  hash, value, value of the instance, permits, permits of the instance
-- ARGV  now (ms; empty: the server's TIME), how (try: only one that has none; set: whether it has one or not; update:
--       only one that has one), rate, interval (ms), type (0 OVERALL, 1 PER_CLIENT), keepAliveTime (ms; 0: none),
--       usage (keep, reset)
-- Returns 1 if the rate was set, else 0.
--
-- Invariant: all four fields are there afterwards, or nothing has changed. What is in use stays in use if it is kept,
-- under the new rate; the state of an earlier life counts as far as it has not returned. Another type is another bucket:
-- then this instance's state is dropped.

local now, how, rate, interval = present(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]
local kind, keep_alive, usage = ARGV[5], ARGV[6], ARGV[7]

local stored = redis.call('HMGET', KEYS[1], 'rate', 'interval', 'type')
local exists = stored[1] and stored[2] and stored[3]
if (how == 'try' and exists) or (how == 'update' and not exists) then return 0 end

local own = kind == '1' and 1 or 0
if stored[3] and stored[3] ~= kind then
  redis.call('UNLINK', KEYS[2], KEYS[3], KEYS[4], KEYS[5])
elseif usage == 'reset' then
  redis.call('UNLINK', KEYS[2 + own], KEYS[4 + own])
end

redis.call('HSET', KEYS[1], 'rate', rate, 'interval', interval, 'keepAliveTime', keep_alive, 'type', kind)
if tonumber(keep_alive) > 0 then redis.call('PEXPIRE', KEYS[1], keep_alive) else redis.call('PERSIST', KEYS[1]) end

-- Peers believe the counter: it says at once what the log says under the new rate. What it said under none is nothing.
redis.call('PERSIST', KEYS[2 + own])
redis.call('PERSIST', KEYS[4 + own])
local bucket = foreign.read(1, 'library', kind, now, nil, nil, tonumber(stored[1]) or -math.huge)
foreign.heal(bucket)
if bucket.live > 0 then foreign.keep_alive(bucket) end
return 1
