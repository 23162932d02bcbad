-- operations: the operations that a call can request. `admit` decides (admit.lua); `give_back` undoes the charges of a
-- request that reached no upstream; `inspect` reads buckets for operators; `announce` registers a gateway;
-- `charge_later` charges the permits that a gateway granted while this server was unreachable; `release`, `set_rate`
-- and `expire` serve the library, on one shared limiter (redisson.lua).
--
-- KEYS  admit, give_back, inspect: the keys of all buckets, limiter by limiter; charge_later: the same, then a key that
--       marks the late charge as made; announce: a sorted set of gateways by the time of their last announcement;
--       otherwise the keys of one bucket of redisson.lua
-- ARGV  the operation, then: admit: see admit.lua; give_back: the limiters as in admit.lua, for each bucket the permits
--       and the time of the charge (ms; of its time slot if it has one), and now (ms; omitted: the server's TIME);
--       inspect: the limiters, the permits of a request, and now; announce: the gateway, and how long the announcement
--       is valid (ms); charge_later: the limiters, for each bucket the number of grants and for each grant its permits
--       and its age (ms), oldest first, random bytes for shared limits, and the charging function of the algorithm
--       (admit.lua; omitted: `charge`); otherwise now (ms; empty: the server's TIME), and the operation's own
--       arguments. Spaces separate the numbers of buckets.
-- Returns inspect: now, and for each bucket the remaining permits, the time until more are available, the permits in
--       use, the wait and the delay of the request, the time to live (ms; negative: none), and the permits that open
--       reservations reserve (negative: the limit is no budget), but no buckets if a limit needs other calendar boundaries; announce: the number of gateways, and 1 if this gateway is new, else 0;
--       charge_later: 1 if this call charged the grants, else 0; give_back: an empty list; otherwise the result of the
--       operation; or the error of a limiter that has no rate
--
-- Invariant: inspect writes nothing. After give_back no bucket has more free permits than without the request, and
-- permits that have returned are not given back. A late charge is made once, even if it is sent again, and even above
-- the limit. Its grants are dated at their own time, or at the last charge of the bucket if that is later, so that no
-- permit returns too early.

local operations = { admit = admit }

function operations.give_back(arguments)
  local now, next_number = decision_time(arguments[4] or ''), string.gmatch(arguments[3], '%d+')
  each_bucket(arguments[2], now, function(_, algorithm, limiter, key)
    local permits, at = tonumber(next_number()), tonumber(next_number())
    if permits > 0 then algorithm.give_back(limiter, key, permits, at, now) end
  end)
  return {}
end

function operations.announce(arguments)
  local now, lasts, gateways = decision_time(''), tonumber(arguments[3]), KEYS[1]
  local is_new = call('ZADD', gateways, text(now), arguments[2])
  call('ZREMRANGEBYSCORE', gateways, '-inf', text(now - lasts))
  -- The clock went back: announcements from the future were made just now.
  for _, ahead in ipairs(call('ZRANGEBYSCORE', gateways, '(' .. text(now), '+inf')) do
    call('ZADD', gateways, text(now), ahead)
  end
  call('PEXPIRE', gateways, text(lasts))
  return { call('ZCARD', gateways), is_new }
end

function operations.inspect(arguments)
  local permits, now, failure = tonumber(arguments[3]), decision_time(arguments[4] or ''), nil
  local reply = { now }
  each_bucket(arguments[2], now, function(_, algorithm, limiter, key)
    if limiter.unknown or failure then return end
    local bucket = (algorithm.peek or algorithm.open)(limiter, key, now)
    failure = bucket.failure
    if failure then return end
    local _, wait, delay = algorithm.check(bucket, permits)
    local remaining, reset = algorithm.status(bucket)
    local used = bucket.used + (bucket.debt or 0) + ((bucket.parts or 0) > 0 and 1 or 0)
    local time_to_live, reserved = call('PTTL', bucket.value or KEYS[key]), algorithm.inner and bucket.reserved or -1
    for _, number in ipairs({ remaining, reset, used, wait, delay or 0, time_to_live, reserved }) do
      reply[#reply + 1] = number
    end
  end)
  return failure and redis.error_reply(failure) or reply
end

-- Charges one grant of a late charge to the bucket with this first key.
local function charge_grant(algorithm, charge, limiter, key, words, permits, at, now, random)
  -- The leases of a budget depend on the present: a charge in the past leaves them alone.
  if algorithm.inner then
    algorithm, words = algorithm.inner, { unpack(words, 3) }
    limiter = algorithm.limiter(words, now)
  end
  local bucket = algorithm.open(limiter, key, now)
  if bucket.failure then return end
  at = math.min(now, math.max(at, bucket.date or now))
  limiter = algorithm.limiter(words, at)
  if limiter.unknown then return end
  bucket = algorithm.open(limiter, key, at)
  algorithm[charge](bucket, permits)
  algorithm.save(bucket, random)
end

function operations.charge_later(arguments)
  local now, next_number, grants = decision_time(''), string.gmatch(arguments[3], '%d+'), 0
  if not call('SET', KEYS[#KEYS], '1', 'NX', 'PX', '3600000') then return 0 end
  each_bucket(arguments[2], now, function(_, algorithm, limiter, key, words)
    for _ = 1, next_number() do
      local permits, ago = tonumber(next_number()), tonumber(next_number())
      local random = to_bytes('<I4', grants) .. string.sub(arguments[4], 1, 4)
      local charge = arguments[5] or 'charge'
      if not limiter.unknown then charge_grant(algorithm, charge, limiter, key, words, permits, now - ago, now, random) end
      grants = grants + 1
    end
  end)
  return 1
end

for _, name in ipairs({ 'release', 'set_rate', 'expire' }) do
  operations[name] = function(arguments)
    return algorithms.redisson[name](decision_time(arguments[2]), unpack(arguments, 3))
  end
end
