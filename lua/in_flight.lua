-- in_flight: leases of requests in flight. A call takes one lease of a route and of a client, and renews and releases
-- other leases of its gateway.
--
-- KEYS  sorted sets of leases by the time when they end (ms): first those in which a lease is taken, then others
-- ARGV  `in_flight`; how long a lease lasts (ms); the lease to take; the bounds of the keys in which it is taken, separated
--       by spaces; then for each key the number of leases to renew, these leases, the number of leases to release, and
--       these leases
-- Returns for each key in which a lease is taken the number of leases that remain for others, or -1 if it is full
--
-- Invariant: the lease is taken in all of these keys or in none. While all leases are renewed, a key has at most as many
-- leases as its bound. A lease that is not renewed ends after its duration. TIME is read once.

-- Renews and releases leases of a key that are listed from `at` on. Returns the position of the leases of the next key.
local function keep(key, arguments, at, ends, lasts)
  local last = at + tonumber(arguments[at])
  for i = at + 1, last do call('ZADD', key, ends, arguments[i]) end
  if last > at then call('PEXPIRE', key, lasts + 1000) end
  at, last = last + 1, last + 1 + tonumber(arguments[last + 1])
  for i = at + 1, last do call('ZREM', key, arguments[i]) end
  return last + 1
end

-- Returns how many leases are free. A lease that ends after `ends` was taken before the clock went back, and is shortened.
local function free(key, bound, now, ends)
  call('ZREMRANGEBYSCORE', key, '-inf', text(now))
  local left = bound - call('ZCARD', key)
  if left > 0 then return left end
  for _, ahead in ipairs(call('ZRANGEBYSCORE', key, '(' .. ends, '+inf')) do call('ZADD', key, ends, ahead) end
  return 0
end

function operations.in_flight(arguments)
  local now, lasts, lease = decision_time(''), tonumber(arguments[2]), arguments[3]
  local ends, at, left, all = text(now + lasts), 5, {}, true
  for i = 1, #KEYS do at = keep(KEYS[i], arguments, at, ends, lasts) end
  for bound in string.gmatch(arguments[4], '%d+') do
    left[#left + 1] = free(KEYS[#left + 1], tonumber(bound), now, ends) - 1
    all = all and left[#left] >= 0
  end
  for i = 1, all and #left or 0 do
    call('ZADD', KEYS[i], ends, lease)
    call('PEXPIRE', KEYS[i], lasts + 1000)
  end
  return left
end
