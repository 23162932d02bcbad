-- operations: what a call can ask for. `admit` decides (admit.lua); `give_back` undoes the charges of a request that reached no
-- upstream; `announce` says that a gateway is there; `owe` charges what one granted while this server was unreachable; `release`,
-- `set_rate` and `expire` are the library's, on one shared limiter (the end of redisson.lua).
--
-- KEYS  admit, give_back: those of all buckets, limiter by limiter; owe: the same, then one that remembers that this was done;
--       announce: a sorted set of gateways, by the time of their last announcement; else those of one bucket of redisson.lua
-- ARGV  the operation, and: admit: as admit.lua takes them; give_back: the limiters, as admit.lua takes them, for each bucket what it was
--       charged and when (permits and ms, or those of its slot), and now (ms; left out: the server's TIME); announce: the
--       gateway, and how long it is there without another word (ms); owe: the limiters, for each bucket how many grants are
--       told of, and for each of these permits and how long ago it was (ms), oldest first, and random bytes for shared limits;
--       else now (ms; empty: the server's TIME), and the operation's own. Numbers for buckets are separated by spaces.
-- Returns how many gateways are there, and 1 if this one was not, else 0 (announce); whether it was charged just now (owe); an
-- empty list (give_back); the result of another operation; or the error of a limiter that has no rate
--
-- Invariant: after give_back no bucket holds more than if the request had never been, and what has returned by itself is left
-- alone. A payment is charged once, even if it is sent again, and even above the limit. A grant is dated when it was granted,
-- or when the bucket was charged last if that is later: it never returns too early.

local operations = { admit = admit }

function operations.give_back(arguments)
  local now, next_number = present(arguments[4] or ''), string.gmatch(arguments[3], '%d+')
  each_bucket(arguments[2], now, function(_, algorithm, limiter, key)
    local permits, at = tonumber(next_number()), tonumber(next_number())
    if permits > 0 then algorithm.give_back(limiter, key, permits, at, now) end
  end)
  return {}
end

function operations.announce(arguments)
  local now, lasts, gateways = present(''), tonumber(arguments[3]), KEYS[1]
  local is_new = call('ZADD', gateways, text(now), arguments[2])
  call('ZREMRANGEBYSCORE', gateways, '-inf', text(now - lasts))
  -- The clock went back: they were there just now.
  for _, ahead in ipairs(call('ZRANGEBYSCORE', gateways, '(' .. text(now), '+inf')) do
    call('ZADD', gateways, text(now), ahead)
  end
  call('PEXPIRE', gateways, text(lasts))
  return { call('ZCARD', gateways), is_new }
end

-- Charges a grant to the bucket whose first key this is.
local function owe_one(algorithm, limiter, key, words, permits, at, now, random)
  local bucket = algorithm.open(limiter, key, now)
  if bucket.failure then return end
  at = math.min(now, math.max(at, bucket.date or now))
  limiter = algorithm.limiter(words, at)
  if limiter.unknown then return end
  bucket = algorithm.open(limiter, key, at)
  algorithm.charge(bucket, permits)
  algorithm.save(bucket, random)
end

function operations.owe(arguments)
  local now, next_number, told = present(''), string.gmatch(arguments[3], '%d+'), 0
  if not call('SET', KEYS[#KEYS], '1', 'NX', 'PX', '3600000') then return 0 end
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

for _, name in ipairs({ 'release', 'set_rate', 'expire' }) do
  operations[name] = function(arguments)
    return algorithms.redisson[name](present(arguments[2]), unpack(arguments, 3))
  end
end
