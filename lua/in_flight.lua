-- in_flight: leases of requests in flight, as algorithms of admit.lua: a request takes its lease in the decision about
-- its limits. `in_flight` is for the slots of a client. `in_flight_shared` is for the slots of a route, for which
-- requests of several gateways wait. `released` ends leases before the other buckets are opened. The operation
-- `in_flight` renews and releases the leases of a gateway.
--
-- KEYS  of a bucket: a sorted set of leases by the time when they end (ms); for `in_flight_shared` then a hash of the
--       gateways whose requests wait: the arrival of the first of them, and the time when it last asked (ms)
-- ARGV  in_flight: the bound, how long a lease lasts (ms), the start of the names of leases; in_flight_shared: the
--       same, the gateway, and for how long the first of its waiting requests waits (ms; `-` if none does); released:
--       leases, separated by commas. The permits of a request are the number of its lease. Of the operation: how long a
--       lease lasts; then for each key the number of leases to renew, these leases, the number of leases to release,
--       and these leases
-- Adds algorithms, as documented in admit.lua, and an operation that returns an empty list
--
-- Invariant: while all leases are renewed, a key has at most as many leases as its bound. A lease that is not renewed
-- ends after its duration. A gateway whose requests wait gets the next free lease before gateways whose requests
-- arrived later, if it asks again within LAPSE_AFTER. TIME is read once.

local LAPSE_AFTER = 100

local in_flight = { keys = 1, args = 3, serial = true, is_slot = true }

function in_flight.limiter(words, now)
  local bound, lasts, gateway, waits = tonumber(words[1]), tonumber(words[2]), words[4], tonumber(words[5])
  return {
    bound = bound, now = now, ends = text(now + lasts), keep = lasts + 1000, prefix = words[3], gateway = gateway,
    is_waited_for = waits, arrived_at = now - (waits or 0),
  }
end

-- Returns how many leases are free. A lease that ends after `ends` was taken before the clock went back, and is
-- shortened.
local function free(key, limiter)
  call('ZREMRANGEBYSCORE', key, '-inf', text(limiter.now))
  local left = limiter.bound - call('ZCARD', key)
  if left > 0 then return left end
  for _, ahead in ipairs(call('ZRANGEBYSCORE', key, '(' .. limiter.ends, '+inf')) do call('ZADD', key, limiter.ends, ahead) end
  return 0
end

-- Returns how many leases are reserved for gateways whose requests arrived before, and whether this gateway waits.
local function reserved(key, limiter)
  local before, waits, queue = 0, false, call('HGETALL', key)
  for i = 1, #queue, 2 do
    local arrived_at, asked_at = string.match(queue[i + 1], '(%d+) (%d+)')
    local is_live = asked_at and math.abs(limiter.now - asked_at) < LAPSE_AFTER
    if queue[i] == limiter.gateway then
      waits = true
    elseif is_live and tonumber(arrived_at) < limiter.arrived_at then
      before = before + 1
    end
  end
  return before, waits
end

function in_flight.open(limiter, key)
  local queue, before, waits = limiter.gateway and KEYS[key + 1], 0, false
  if queue then before, waits = reserved(queue, limiter) end
  local left = free(KEYS[key], limiter)
  return { key = KEYS[key], limiter = limiter, left = left, reserved = before, queue = queue, waits = waits, added = nil }
end

function in_flight.check(bucket)
  local is_granted = bucket.left > bucket.reserved
  bucket.is_full = not is_granted
  return is_granted, 1
end

function in_flight.status(bucket)
  return math.max(0, bucket.left), 0
end

function in_flight.charge(bucket, lease)
  local added, limiter = bucket.added or {}, bucket.limiter
  added[#added + 1] = limiter.ends
  added[#added + 1] = limiter.prefix .. string.format('%x', lease)
  bucket.added, bucket.left = added, bucket.left - 1
end

-- Stores the place of this gateway among the gateways whose requests wait, or removes it.
function in_flight.on_refusal(bucket)
  local limiter = bucket.limiter
  if bucket.is_full and limiter.is_waited_for then
    call('HSET', bucket.queue, limiter.gateway, text(limiter.arrived_at) .. ' ' .. text(limiter.now))
    call('PEXPIRE', bucket.queue, LAPSE_AFTER)
  elseif bucket.waits then
    call('HDEL', bucket.queue, limiter.gateway)
  end
end

function in_flight.save(bucket)
  call('ZADD', bucket.key, unpack(bucket.added))
  call('PEXPIRE', bucket.key, bucket.limiter.keep)
  in_flight.on_refusal(bucket)
end

local in_flight_shared = {}
for name, value in pairs(in_flight) do in_flight_shared[name] = value end
in_flight_shared.keys, in_flight_shared.args = 2, 5

local released = { keys = 1, args = 1 }

function released.limiter(words)
  local leases = {}
  for lease in string.gmatch(words[1], '[^,]+') do leases[#leases + 1] = lease end
  return leases
end

function released.open(leases, key)
  call('ZREM', KEYS[key], unpack(leases))
  return {}
end

algorithms.in_flight, algorithms.in_flight_shared, algorithms.released = in_flight, in_flight_shared, released

-- Renews and releases leases of a key that are listed from `at` on. Returns the position of the leases of the next key.
local function keep(key, arguments, at, ends, lasts)
  local last = at + tonumber(arguments[at])
  for i = at + 1, last do call('ZADD', key, ends, arguments[i]) end
  if last > at then call('PEXPIRE', key, lasts + 1000) end
  at, last = last + 1, last + 1 + tonumber(arguments[last + 1])
  for i = at + 1, last do call('ZREM', key, arguments[i]) end
  return last + 1
end

function operations.in_flight(arguments)
  local lasts, at = tonumber(arguments[2]), 3
  local ends = text(decision_time('') + lasts)
  for i = 1, #KEYS do at = keep(KEYS[i], arguments, at, ends, lasts) end
  return {}
end
