-- membership: announces a gateway, and charges what it granted while this server was unreachable.
--
-- KEYS  announce: a sorted set of gateways, by the time of their last announcement; owe: those of all buckets, limiter by limiter, then
--       one that remembers that this was done
-- ARGV  the operation; announce: the gateway, and how long it is there without another word (ms); owe: the limiters, as
--       admit.lua takes them, for each bucket how many grants are told of, and for each of these permits and how long ago it
--       was (ms), oldest first, all separated by spaces, and random bytes for shared limits
-- Returns how many gateways are there; whether it was charged just now
--
-- Invariant: a payment is charged once, even if it is sent again, and even above the limit. A grant is dated when it was
-- granted, or when the bucket was charged last if that is later: it never returns too early.

local function announce(arguments)
  local now, lasts, gateways = present(''), tonumber(arguments[3]), KEYS[1]
  redis.call('ZADD', gateways, text(now), arguments[2])
  redis.call('ZREMRANGEBYSCORE', gateways, '-inf', text(now - lasts))
  redis.call('ZREMRANGEBYSCORE', gateways, text(now + lasts), '+inf')
  redis.call('PEXPIRE', gateways, text(lasts))
  return redis.call('ZCARD', gateways)
end

-- Charges a grant to the bucket whose first key this is.
local function owe_one(algorithm, limiter, key, words, permits, at, now, random)
  local bucket = algorithm.open(limiter, key, now)
  if bucket.failure then return end
  at = math.min(now, math.max(at, bucket.date or not bucket.log and bucket.at or now))
  limiter = algorithm.limiter(words, at)
  if limiter.unknown then return end
  bucket = algorithm.open(limiter, key, at)
  algorithm.charge(bucket, permits)
  algorithm.save(bucket, random)
end

local function owe(arguments)
  local now, next_number, told = present(''), string.gmatch(arguments[3], '%d+'), 0
  if not redis.call('SET', KEYS[#KEYS], '1', 'NX', 'PX', '3600000') then return 0 end
  each_bucket(arguments[2], now, function(_, algorithm, limiter, key, words)
    for _ = 1, next_number() do
      local permits, ago = tonumber(next_number()), tonumber(next_number())
      local random = to_bytes('<I4', told) .. string.sub(arguments[4], 1, 4)
      if not limiter.unknown then owe_one(algorithm, limiter, key, words, permits, now - ago, now, random) end
      told = told + 1
    end
  end)
  return 1
end
