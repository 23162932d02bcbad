-- budgets: limits with reservations, as algorithms of admit.lua: `budget_` and the name of an inner algorithm, whose bucket
-- has the settled costs. A reservation holds permits for a request whose cost is not known yet, and ends when the cost is
-- charged. A gateway keeps its reservations open by a lease.
--
-- KEYS  of a bucket: the keys of the inner algorithm, then two hashes. Holders: for each gateway with open reservations,
--       when its lease ends (ms) and the permits of its reservations; for each gateway whose lease has ended, named with a
--       `-`, when it ended (ms). Reservations: the permits of each, and when it was made (ms)
-- ARGV  of a limiter: how long a lease lasts (ms), `1` if reservations are charged when the lease ends, else `0`, and the
--       arguments of the inner algorithm. A reservation is named by its gateway (8 bytes) and a number (8 bytes). Of the
--       operation `renew_budgets`, whose keys are the two hashes of each bucket: the gateway, how long a lease lasts, and
--       for each bucket the time to live of its hashes (ms)
-- Adds algorithms, as documented in admit.lua, and an operation that returns an empty list
--
-- Invariant: a bucket grants permits only if it has them in addition to the permits of all open reservations. So settled
-- costs and open reservations are at most the rate, unless a cost exceeds its reservation. A reservation is settled once. A lease
-- that has ended is charged once, dated at its end, and a later settlement corrects the charge. TIME is read once.

-- The wait for permits that are reserved (crates/rules/src/charge/reservation.rs has it too), and how long a settlement can correct
-- the charge of a lease that has ended.
local RESERVED_WAIT, CORRECTABLE = 1000, 600000

-- Charges permits to a bucket that no call has open, dated at a time in the past.
local function charge_at(inner, limiter, key, permits, at, now)
  local bucket = inner.open(limiter, key, now)
  at = math.min(now, math.max(at, bucket.date or now))
  local then_limiter = inner.limiter(limiter.inner_words, at)
  if then_limiter.unknown then then_limiter, at = limiter, now end
  bucket = inner.open(then_limiter, key, at)
  inner.charge_unconditionally(bucket, permits)
  inner.save(bucket)
end

-- Reads the holders of reservations. Returns the permits of all open reservations, the open holders and the ended leases by
-- gateway, and a list of leases that have ended since the last call.
local function read_holders(limiter, key, now)
  local reserved, holders, ended, ending, stored = 0, {}, {}, {}, call('HGETALL', KEYS[key])
  for i = 1, #stored, 2 do
    local gateway, ends, permits = stored[i], string.match(stored[i + 1], '^(%d+) ?(%d*)$')
    ends, permits = tonumber(ends), tonumber(permits)
    if not permits then
      ended[string.sub(gateway, 2)] = ends
    elseif ends <= now then
      ending[#ending + 1] = { gateway = gateway, ends = ends, permits = permits }
    else
      -- A lease that ends later was renewed before the clock went back.
      holders[gateway] = { ends = math.min(ends, now + limiter.lasts), permits = permits, changed = ends > now + limiter.lasts }
      reserved = reserved + permits
    end
  end
  return reserved, holders, ended, ending
end

-- Ends leases that were not renewed.
local function end_leases(inner, limiter, key, ending, ended, now)
  local holders = KEYS[key + inner.keys]
  for _, lease in ipairs(ending) do
    call('HDEL', holders, lease.gateway)
    call('HSET', holders, '-' .. lease.gateway, text(lease.ends))
    ended[lease.gateway] = lease.ends
    if limiter.charges_lost and lease.permits > 0 then
      charge_at(inner, limiter, key, lease.permits, lease.ends, now)
    end
  end
end

-- Returns the algorithm that adds reservations to this one.
local function budget_of(inner)
  local budget = {}
  for name, value in pairs(inner) do budget[name] = value end
  budget.keys, budget.args, budget.grant, budget.inner = inner.keys + 2, inner.args + 2, nil, inner

  function budget.limiter(words, now)
    local inner_words = { unpack(words, 3, 2 + inner.args) }
    local limiter = inner.limiter(inner_words, now)
    limiter.inner_words, limiter.time = inner_words, now
    limiter.lasts, limiter.charges_lost = tonumber(words[1]), words[2] == '1'
    return limiter
  end

  local function open(limiter, key, now, is_peek)
    local reserved, holders, ended, ending = read_holders(limiter, key + inner.keys, now)
    if is_peek then
      for _, lease in ipairs(ending) do reserved = reserved + lease.permits end
    else
      end_leases(inner, limiter, key, ending, ended, now)
    end
    local bucket = (is_peek and inner.peek or inner.open)(limiter, key, now)
    bucket.reserved, bucket.holders, bucket.ended, bucket.first_key = reserved, holders, ended, key
    bucket.made, bucket.settled, bucket.refunds, bucket.is_charged = {}, {}, {}, false
    return bucket
  end

  function budget.open(limiter, key, now) return open(limiter, key, now, false) end

  function budget.peek(limiter, key, now) return open(limiter, key, now, true) end

  function budget.check(bucket, permits)
    if permits == 0 then return inner.check(bucket, 0) end
    local is_granted, wait, delay = inner.check(bucket, permits + bucket.reserved)
    if not is_granted and wait < 0 and bucket.reserved > 0 then
      local is_free, own_wait = inner.check(bucket, permits)
      if is_free or own_wait >= 0 then wait = RESERVED_WAIT end
    end
    return is_granted, wait, delay
  end

  function budget.status(bucket)
    local remaining, reset = inner.status(bucket)
    return math.max(0, remaining - bucket.reserved), reset
  end

  local function add_to_holder(bucket, gateway, permits)
    local holder = bucket.holders[gateway] or { ends = 0, permits = 0 }
    holder.permits, holder.changed = holder.permits + permits, true
    bucket.holders[gateway], bucket.reserved = holder, bucket.reserved + permits
    return holder
  end

  -- Makes a reservation, or adds permits to it. Without a name, charges permits.
  function budget.charge(bucket, permits, reservation)
    if not reservation then
      bucket.is_charged = true
      return inner.charge(bucket, permits)
    end
    bucket.made[reservation] = (bucket.made[reservation] or 0) + permits
    local holder = add_to_holder(bucket, string.sub(reservation, 1, 8), permits)
    holder.ends, bucket.added = bucket.limiter.time + bucket.limiter.lasts, bucket.added or 0
  end

  local function charge_unconditionally(bucket, permits)
    bucket.is_charged = true
    inner.charge_unconditionally(bucket, permits)
  end

  -- Settles a reservation whose lease has ended.
  local function correct(bucket, permits, reserved, ended_at)
    if not bucket.limiter.charges_lost then reserved = 0 end
    if permits > reserved then
      charge_unconditionally(bucket, permits - reserved)
    elseif permits < reserved then
      bucket.refunds[#bucket.refunds + 1] = { permits = reserved - permits, at = ended_at }
    end
  end

  -- Settles a reservation, which a call can make only before. Without a name, charges permits in any case.
  function budget.charge_unconditionally(bucket, permits, reservation)
    if not reservation then return charge_unconditionally(bucket, permits) end
    local stored = call('HGET', KEYS[bucket.first_key + inner.keys + 1], reservation)
    bucket.unspent = 0
    if not stored or bucket.settled[reservation] then return end
    bucket.unspent = inner.status(bucket)
    bucket.settled[reservation], bucket.added = true, bucket.added or 0
    local reserved, made_at = string.match(stored, '^(%d+) (%d+)$')
    local gateway, ended_at = string.sub(reservation, 1, 8), nil
    reserved, ended_at = tonumber(reserved), bucket.ended[gateway]
    if ended_at and tonumber(made_at) < ended_at then return correct(bucket, permits, reserved, ended_at) end
    add_to_holder(bucket, gateway, -reserved)
    if permits > 0 then charge_unconditionally(bucket, permits) end
  end

  local function save_holders(bucket, key)
    for gateway, holder in pairs(bucket.holders) do
      if holder.permits <= 0 then
        call('HDEL', key, gateway)
      elseif holder.changed then
        call('HSET', key, gateway, text(holder.ends) .. ' ' .. text(holder.permits))
      end
    end
    for gateway, ended_at in pairs(bucket.ended) do
      if bucket.limiter.time - ended_at > CORRECTABLE then call('HDEL', key, '-' .. gateway) end
    end
  end

  local function save_reservations(bucket, key)
    for reservation, permits in pairs(bucket.made) do
      local before, made_at = string.match(call('HGET', key, reservation) or '', '^(%d+) (%d+)$')
      call('HSET', key, reservation, text(permits + (before or 0)) .. ' ' .. (made_at or text(bucket.limiter.time)))
    end
    for reservation in pairs(bucket.settled) do call('HDEL', key, reservation) end
  end

  function budget.save(bucket, random)
    local limiter, key = bucket.limiter, bucket.first_key
    local holders, reservations = KEYS[key + inner.keys], KEYS[key + inner.keys + 1]
    if bucket.is_charged then inner.save(bucket, random) end
    save_holders(bucket, holders)
    save_reservations(bucket, reservations)
    -- An ended lease is charged at the next call, which may come as late as its charge would matter.
    local fills_in = limiter.mean or math.ceil(limiter.burst * limiter.interval / limiter.rate)
    local keep = text(limiter.lasts + fills_in + CORRECTABLE)
    call('PEXPIRE', holders, keep)
    call('PEXPIRE', reservations, keep)
    for _, refund in ipairs(bucket.refunds) do inner.give_back(limiter, key, refund.permits, refund.at, limiter.time) end
  end

  return budget
end

for _, name in ipairs({ 'token_bucket', 'gcra', 'gcra_warm_up', 'fixed_window', 'sliding_window' }) do
  algorithms['budget_' .. name] = budget_of(algorithms[name])
end

function operations.renew_budgets(arguments)
  local gateway, lasts = arguments[2], tonumber(arguments[3])
  local ends = text(decision_time('') + lasts)
  for i = 1, #KEYS, 2 do
    local permits = string.match(call('HGET', KEYS[i], gateway) or '', '^%d+ (%d+)$')
    if permits then
      call('HSET', KEYS[i], gateway, ends .. ' ' .. permits)
      local keep = arguments[4 + (i - 1) / 2]
      call('PEXPIRE', KEYS[i], keep)
      call('PEXPIRE', KEYS[i + 1], keep)
    end
  end
  return {}
end
