-- admit: decides a batch of requests with the result of deciding them one after the other at the same time. For each
-- request it checks all live limits, then charges all of them or none. A shadow limit rejects no request: it is charged
-- if its own bucket grants and the live limits are charged.
--
-- KEYS  the keys of all buckets, limiter by limiter
-- ARGV  `admit`; the limiters, as words that each end with a space: for each `ordered` if its buckets have tickets
--       (waiting.lua), its algorithm, the algorithm's arguments, and the number of its buckets; the requests, packed
--       little-endian, with consecutive equal requests as one run: the number of requests (u32), the number of limits
--       of each (u8), and for each limit its bucket's number, from 1 (u16), flags (u8: 1 for a shadow, plus 2 if the
--       bucket is only checked, plus 4 if all tickets come first, or 8 if the request is the first of a queue, plus 16
--       if the permits are charged in any case, plus 32 if a late time slot is refused, plus 64 if the bucket only must
--       not have debt, plus 128 for a reservation), the requested permits (u32), with flag 8 its queue (8 bytes), how
--       long it has waited (u48, ms), the number of requests in the queue (u8), and for each how much later it joined the
--       queue (u32, ms), with flag 32 the longest delay (u48, ms), and with flag 128 the name of the reservation (16
--       bytes), which flag 16 settles; random bytes for shared limits; now (ms; omitted: the server's TIME)
-- Returns now (u64, ms) and the decisions, packed little-endian: for each run of requests with equal decisions the
--       number of requests (u32), then for each limit: granted (1), granted with a time slot in the future (2), or
--       refused (0) (u8), the permits that remain after the last request of the run (of a settlement: that were not spent
--       before it, or 0 if the reservation had ended) (u32), reset (u48, ms), and unless
--       it was granted without a delay, the delay or the wait (i64, ms; -1: never, 0: ask again immediately). No
--       decisions if a limit needs other calendar boundaries, namely those around now. Or the error of a limit that
--       cannot be evaluated
--
-- Invariant: a rejected request and a request that cannot be evaluated change no bucket, a shadow changes only its own
-- bucket, and a check takes no permits. Unconditional permits are granted and charged in any case. TIME is read once,
-- and every bucket is read and written at most twice per call.
-- The script writes nothing until it knows that all buckets can be evaluated. Every algorithm in `algorithms` has
-- `keys` and `args` (their numbers), `serial` if no two requests that are granted at the same time get equal decisions,
-- and the functions
--   limiter(words, now)          the data that all buckets of a limiter share; `unknown` if no window contains now
--   open(limiter, key, now)      the stored bucket; with `failure`, an error that ends the call
--   check(bucket, permits)       whether the bucket grants, the wait (-1: forever), and the delay until the time slot
--   status(bucket)               the remaining permits, and the time until more are available
--   debt_wait(bucket)            optional, for algorithms with debt: the time until the debt is paid, or 0
--   charge(bucket, permits, reservation)  charges granted permits (at least one) in memory, and sets `added`
--   charge_unconditionally(bucket, permits, reservation)  charges permits in any case; those that the bucket lacks are debt
--   save(bucket, random)         writes the charges
--   grant(limiter, key, permits)  optional: checks, charges and saves in one step; returns status(), or nothing
--   on_refusal(bucket, random)   runs after a refusal or a check if nothing was charged; writes only what time or other
--                                rules require
--   peek(limiter, key, now)      optional: the same as open(), if open() may write
--   give_back(limiter, key, permits, at, now)  undoes a grant made at `at`, unless its permits have returned

-- Calls `each` for every bucket of the limiters in `words`, with the bucket's number, algorithm, limiter and first key,
-- the arguments of the limiter, and the key of the tickets, or false.
local function each_bucket(words, now, each)
  local next_word, number, key = string.gmatch(words, '([^ ]*) '), 1, 1
  for name in next_word do
    local is_ordered = name == 'ordered'
    if is_ordered then name = next_word() end
    -- Allocates space for the arguments of any algorithm: growing a table costs as much as a command.
    local algorithm, arguments = algorithms[name], { nil, nil, nil, nil, nil, nil }
    for i = 1, algorithm.args do arguments[i] = next_word() end
    local limiter = algorithm.limiter(arguments, now)
    for _ = 1, next_word() do
      local after = key + algorithm.keys
      each(number, algorithm, limiter, key, arguments, is_ordered and after)
      number, key = number + 1, is_ordered and after + 1 or after
    end
  end
end

-- The buckets of a call, by number: algorithm, limiter, first key, and the open bucket, or false after grant(), which
-- runs at most once per bucket. Then the current request: its limits and their decisions. These are parallel lists,
-- allocated once; each call overwrites them.
local algorithm_of, limiters, keys, buckets, call_time = {}, {}, {}, {}, nil
local numbers, flags, requested, granted, waits = {}, {}, {}, {}, {}
-- The tickets of each bucket and their key; for each limit of the current request the queue of its ticket ('' if all
-- tickets come first, false if none does), since when it waits, how much later each request of its queue joined it, and
-- the permits of the tickets before it.
local tickets_of, ticket_keys, queues, since, ages, before = {}, {}, {}, {}, {}, {}
-- From this flag on, a bucket is only checked. Shadows have odd flags. Higher flags are removed when they are read.
local CHECKS_ONLY, ORDERED, FIRST, UNCONDITIONAL, WITHIN, NO_DEBT, RESERVATION = 2, 4, 8, 16, 32, 64, 128
local is_unconditional, longest_delay, is_debt_check, reservations = {}, {}, {}, {}

-- Opens the bucket with this number, unless it is open.
local function open(number)
  local bucket = buckets[number] or algorithm_of[number].open(limiters[number], keys[number], call_time)
  buckets[number] = bucket
  return bucket
end

-- Reads the turn of the i-th limit of a request from its flags and the bytes that follow. Returns the next position.
local function read_turn(i, requests, at)
  local flag = flags[i]
  queues[i], since[i], before[i], longest_delay[i] = false, math.huge, 0, math.huge
  reservations[i] = flag >= RESERVATION
  if reservations[i] then flag = flag - RESERVATION end
  is_debt_check[i] = flag >= NO_DEBT
  if is_debt_check[i] then flag = flag - NO_DEBT end
  if flag >= WITHIN then
    flag, longest_delay[i], at = flag - WITHIN, from_bytes('<I6', requests, at)
  end
  is_unconditional[i] = flag >= UNCONDITIONAL
  if is_unconditional[i] then flag = flag - UNCONDITIONAL end
  if flag >= FIRST then
    local age, count
    flag, queues[i], age, count, at = flag - FIRST, from_bytes('<c8I6B', requests, at)
    since[i], ages[i], at = call_time - age, string.sub(requests, at, at + 4 * count - 1), at + 4 * count
  elseif flag >= ORDERED then
    flag, queues[i] = flag - ORDERED, ''
  end
  if reservations[i] then reservations[i], at = from_bytes('c16', requests, at) end
  flags[i] = flag
  return at
end

-- Returns the tickets of a bucket that has some.
local function tickets(number)
  local found = tickets_of[number] or waiting.open(KEYS[ticket_keys[number]], call_time)
  tickets_of[number] = found
  return found
end

-- Returns the permits of tickets that come before the request at its i-th limit, and when the first of them ends.
local function permits_before(i)
  if not queues[i] or requested[i] == 0 then return 0 end
  return waiting.before(tickets(numbers[i]), queues[i], since[i])
end

-- Returns the number of these equal requests that are granted with equal decisions, apart from the remaining permits.
local function equal_grants(count, limits)
  if count == 1 then return 1 end
  for i = 1, limits do
    local algorithm, permits = algorithm_of[numbers[i]], requested[i]
    if granted[i] and permits > 0 and flags[i] < CHECKS_ONLY then
      local free = algorithm.status(buckets[numbers[i]]) - before[i]
      local equal = algorithm.serial and 1 or math.floor(free / permits)
      if is_unconditional[i] then equal = math.max(1, equal) end
      if equal < count then count = equal end
    end
  end
  return count
end

-- Checks the request against its i-th limit; returns whether the limit admits it.
local function check(i)
  local algorithm, bucket, permits, ends = algorithm_of[numbers[i]], open(numbers[i]), requested[i], nil
  before[i], ends = permits_before(i)
  local is_granted, wait, delay = algorithm.check(bucket, permits + before[i])
  if not is_granted and before[i] > 0 then wait = waiting.wait(algorithm, bucket, permits, before[i], ends) end
  if delay and delay > longest_delay[i] then is_granted, wait, delay = false, delay - longest_delay[i], nil end
  if is_unconditional[i] then is_granted, delay = true, nil end
  if is_debt_check[i] then
    wait, delay = algorithm.debt_wait and algorithm.debt_wait(bucket) or 0, nil
    is_granted = wait == 0
  end
  granted[i], waits[i] = is_granted, delay or not is_granted and wait
  return is_granted or flags[i] % 2 == 1
end

-- Tries grant() on the bucket of the i-th limit, if the call has not opened it and no ticket comes before. Returns
-- status(), or nothing.
local function grant(i, permits)
  local number = numbers[i]
  local algorithm = algorithm_of[number]
  if buckets[number] ~= nil or permits == 0 or not algorithm.grant or permits_before(i) > 0 then return end
  local remaining, reset = algorithm.grant(limiters[number], keys[number], permits)
  if remaining then buckets[number] = false end
  return remaining, reset
end

-- Writes the ticket of a request that only this limit refuses; otherwise removes the request from it.
local function update_ticket(i, is_held)
  local queue = queues[i]
  if not queue or queue == '' then return end
  if is_held then
    waiting.put(tickets(numbers[i]), queue, since[i], requested[i], ages[i], waits[i])
  else
    waiting.advance(tickets(numbers[i]), queue, since[i], requested[i], ages[i])
  end
end

-- Decides the first of `count` equal requests together with all following ones that get equal decisions. Appends the
-- decisions and returns the number of decided requests. If all other buckets grant, the last unopened one may use
-- grant().
local function decide(count, limits, decisions)
  local all, unopened, decided, early_remaining, early_reset, refusals = true, nil, count, nil, nil, 0
  for i = 1, limits do
    if buckets[numbers[i]] == nil and flags[i] < CHECKS_ONLY then unopened = i end
  end
  for i = 1, limits do
    granted[i], waits[i] = false, false
    if i ~= unopened then all = check(i) and all end
  end
  if all then decided = equal_grants(count, limits) end
  if unopened then
    if all then early_remaining, early_reset = grant(unopened, decided * requested[unopened]) end
    if not early_remaining then
      all = check(unopened) and all
      decided = all and equal_grants(count, limits) or count
    end
  end
  for i = 1, limits do
    local is_slot = algorithm_of[numbers[i]].is_slot
    if buckets[numbers[i]] and not granted[i] and flags[i] % 2 == 0 and not is_slot then refusals = refusals + 1 end
  end
  for i = 1, limits do
    local algorithm, bucket, permits = algorithm_of[numbers[i]], buckets[numbers[i]], requested[i]
    local is_granted, wait = granted[i], waits[i]
    update_ticket(i, bucket and not is_granted and refusals == 1)
    local outcome, remaining, reset = 1, early_remaining, early_reset
    if bucket then
      if not (all and is_granted) or flags[i] >= CHECKS_ONLY then
        bucket.added = bucket.added or false
      elseif permits > 0 or reservations[i] then
        local charge = is_unconditional[i] and algorithm.charge_unconditionally or algorithm.charge
        charge(bucket, decided * permits, reservations[i])
      end
      outcome = not is_granted and 0 or wait and 2 or 1
      remaining, reset = algorithm.status(bucket)
      if reservations[i] and is_unconditional[i] then remaining = bucket.unspent or 0 end
      if before[i] > 0 then remaining = math.max(0, remaining - before[i]) end
    end
    decisions[#decisions + 1] = i == 1 and to_bytes('<I4BI4I6', decided, outcome, remaining, reset)
      or to_bytes('<BI4I6', outcome, remaining, reset)
    if wait then decisions[#decisions + 1] = to_bytes('<i8', wait) end
  end
  return decided
end

-- Decides all requests; returns the packed decisions.
local function decide_all(requests)
  local at, decisions = 1, { to_bytes('<I8', call_time), nil, nil, nil }
  while at <= #requests do
    local left, limits, number, flag, permits
    left, limits, number, flag, permits, at = from_bytes('<I4BI2BI4', requests, at)
    numbers[1], flags[1], requested[1] = number, flag, permits
    at = read_turn(1, requests, at)
    for i = 2, limits do
      numbers[i], flags[i], requested[i], at = from_bytes('<I2BI4', requests, at)
      at = read_turn(i, requests, at)
    end
    local remaining, reset
    if limits == 1 and flags[1] < CHECKS_ONLY then remaining, reset = grant(1, left * permits) end
    if remaining then
      update_ticket(1, false)
      decisions[#decisions + 1] = to_bytes('<I4BI4I6', left, 1, remaining, reset)
    else
      while left > 0 do left = left - decide(left, limits, decisions) end
    end
  end
  return table.concat(decisions)
end

local function admit(arguments)
  local random, now, count, failure, unknown = arguments[4], decision_time(arguments[5] or ''), 0, nil, false
  call_time = now
  each_bucket(arguments[2], now, function(number, algorithm, limiter, key, _, ticket_key)
    tickets_of[number], ticket_keys[number] = nil, ticket_key
    algorithm_of[number], limiters[number], keys[number], buckets[number], count = algorithm, limiter, key, nil, number
    unknown = unknown or limiter.unknown
    if not algorithm.grant and not unknown then failure = failure or open(number).failure end
  end)
  if failure then return redis.error_reply(failure) end
  if unknown then return to_bytes('<I8', now) end
  local decisions = decide_all(arguments[3])
  for number = 1, count do
    local bucket = buckets[number]
    if tickets_of[number] then waiting.save(tickets_of[number]) end
    if bucket and bucket.added then
      algorithm_of[number].save(bucket, random)
    elseif bucket and bucket.added == false then
      algorithm_of[number].on_refusal(bucket, random)
    end
  end
  return decisions
end
