-- Takes permits as a Redisson client does. Written from its documented behaviour, weaknesses included.
-- KEYS hash, value, client value, permits, client permits; ARGV permits, the client's clock (ms), 16 random bytes
local function permits_of(member)
  local _, permits = struct.unpack('Bc0I', member)
  return permits
end
local rate, interval, kind = unpack(redis.call('HMGET', KEYS[1], 'rate', 'interval', 'type'))
assert(rate and interval and kind, 'RateLimiter is not initialized')
local value, log = KEYS[2], KEYS[4]
if kind == '1' then value, log = KEYS[3], KEYS[5] end
local asked, now = tonumber(ARGV[1]), tonumber(ARGV[2])
assert(tonumber(rate) >= asked, 'Requested permits amount cannot exceed defined rate')

local function grant()
  redis.call('ZADD', log, ARGV[2], struct.pack('Bc0I', #ARGV[3], ARGV[3], asked))
  redis.call('DECRBY', value, ARGV[1])
end

local wait
local counter = redis.call('GET', value)
if not counter then
  redis.call('SET', value, rate)
  grant()
else
  counter = tonumber(counter)
  local edge = now - tonumber(interval)
  local expired = 0
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', log, 0, edge)) do expired = expired + permits_of(member) end
  if expired > 0 then
    redis.call('ZREMRANGEBYSCORE', log, 0, edge)
    if counter + expired > tonumber(rate) then
      local used = 0
      for _, member in ipairs(redis.call('ZRANGE', log, 0, -1)) do used = used + permits_of(member) end
      counter = tonumber(rate) - used
    else
      counter = counter + expired
    end
    redis.call('SET', value, counter)
  end
  if counter < asked then
    local first = redis.call('ZRANGE', log, 0, 0, 'WITHSCORES')
    wait = 3 + tonumber(interval) - (now - tonumber(first[2]))
  else
    grant()
  end
end

local keep = tonumber(redis.call('HGET', KEYS[1], 'keepAliveTime'))
if keep and keep > 0 then
  for _, key in ipairs({ KEYS[1], value, log }) do redis.call('PEXPIRE', key, keep) end
else
  local left = redis.call('PTTL', KEYS[1])
  if left > 0 then
    redis.call('PEXPIRE', value, left)
    redis.call('PEXPIRE', log, left)
  end
end
return wait
