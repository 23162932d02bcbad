-- decide: decides the requests of a call (see admit.lua), in memory but for buckets that are asked for once; then writes
-- what was charged.
--
-- KEYS  those of admit.lua
-- ARGV  those of admit.lua
-- Returns nothing; it stands before admit.lua.
--
-- Invariant: that of admit.lua.

-- Buckets by number, as far as they were asked for; those that were charged, and those that were not charged by some
-- request, with their algorithms.
local buckets, charged, refused

-- What a request of the present kind asks: of each limit its bucket (the number of one that is asked for once), permits,
-- and whether it only watches; and what its limits say. They are made once, where Redis keeps functions.
local asked, algorithms_asked, permits_asked, watches = {}, {}, {}, {}
local granted, waits, delays, answers = {}, {}, {}, {}

-- Opens the buckets that have to be known before anything is written; returns what is wrong with one, and whether all
-- can be judged by what was sent.
local function open_all(plan, now)
  buckets, charged, refused = nil, nil, nil
  local known, failure = true, nil
  if not plan.opens then return nil, true end
  for _, of in ipairs(plan.limiters) do
    if not of.algorithm.take then
      for number = of.first, of.last do
        local bucket = of.algorithm.open(of.limiter, plan.key_of[number], now)
        buckets = buckets or {}
        buckets[number] = bucket
        known = known and not bucket.unknown
        failure = failure or bucket.failure
      end
    end
  end
  return failure, known
end

local function open(plan, number, now)
  buckets = buckets or {}
  local bucket = buckets[number]
  if not bucket then
    bucket = plan.algorithm_of[number].open(plan.limiter_of[number], plan.key_of[number], now)
    buckets[number] = bucket
  end
  return bucket
end

-- How many of so many requests are granted alike, each with the same answer but for what remains.
local function alike(count, limits)
  for i = 1, limits do
    if granted[i] and permits_asked[i] > 0 then
      local algorithm = algorithms_asked[i]
      local most = algorithm.one_by_one and 1 or math.floor(algorithm.tell(asked[i]) / permits_asked[i])
      count = math.min(count, most)
    end
  end
  return count
end

-- What a kind asks for, so many steps into its run: fills the lists above, and returns which of its limits asks for a bucket
-- that nobody else in the call asks for, if one does.
local function read_kind(plan, now, limits, requests, at, step)
  local alone
  for i = 1, limits do
    local number, how, permits
    number, how, permits, at = struct.unpack('<I2BI4', requests, at)
    permits_asked[i], algorithms_asked[i], watches[i] = permits, plan.algorithm_of[number], how == 1
    if how == 3 then number = number + step end
    if how == 2 then alone, asked[i] = i, number else asked[i] = open(plan, number, now) end
  end
  charged, refused = charged or {}, refused or {}
  return alone
end

-- Decides so many requests of the kind that was read; adds the answers to those that there are. It is one function with
-- variables of its own, since every call of another would cost as much as what it is for.
local function decide_kind(plan, random, left, limits, alone, length)
  local pack = struct.pack
  while left > 0 do
    local all, count, alone_remaining, alone_reset = true, left, nil, nil
    for i = 1, limits do
      if i ~= alone then
        granted[i], waits[i], delays[i] = algorithms_asked[i].check(asked[i], permits_asked[i])
        all = all and (granted[i] or watches[i])
      end
    end
    if alone then
      local number = asked[alone]
      delays[alone] = nil
      granted[alone], waits[alone], alone_remaining, alone_reset =
        algorithms_asked[alone].take(plan.limiter_of[number], plan.key_of[number], permits_asked[alone], all)
      all = all and granted[alone]
    elseif all and left > 1 then
      count = alike(left, limits)
    end
    for i = 1, limits do
      local said, later, remaining, reset = 1, delays[i], alone_remaining, alone_reset
      if i ~= alone then
        local bucket, of = asked[i], algorithms_asked[i]
        if all and granted[i] then
          of.charge(bucket, count * permits_asked[i], random)
          charged[bucket] = of
        else
          refused[bucket] = of
        end
        remaining, reset = of.tell(bucket)
      end
      if not granted[i] then said, later = 0, waits[i] elseif later then said = 2 end
      local bytes = i == 1 and pack('<I4BI4I6', count, said, remaining, reset) or pack('<BI4I6', said, remaining, reset)
      length = length + 1
      answers[length] = later and bytes .. pack('<i8', later) or bytes
    end
    left = left - count
  end
  return length
end

-- Decides a run of requests for rows of token buckets; what is not granted as on every day is left to all the rest. Returns
-- how many answers there are then.
local function decide_rows(plan, now, random, count, run, limits, number, wanted, requests, at, length)
  local pack, take_one, limiter_of, key_of = struct.pack, token_bucket.take_one, plan.limiter_of, plan.key_of
  for step = 0, run - 1 do
    local taken, answer, left, reset
    if limits == 1 then
      taken, left, reset = take_one(limiter_of[number], key_of[number + step], count, wanted)
      answer = taken > 0 and pack('<I4BI4I6', taken, 1, left, reset)
    else
      taken, answer = token_bucket.take_row(plan, count, limits, requests, at, step)
    end
    if taken > 0 then
      length = length + 1
      answers[length] = answer
    end
    if taken < count then
      read_kind(plan, now, limits, requests, at, step)
      length = decide_kind(plan, random, count - taken, limits, nil, length)
    end
  end
  return length
end

-- Decides all requests; returns the answers.
local function decide(plan, now, random, requests)
  local at, length, bytes = 1, 1, #requests
  answers[1] = struct.pack('<I8', now)
  while at <= bytes do
    local count, run, limits, number, how, wanted = struct.unpack('<I4I2BI2BI4', requests, at)
    at = at + 7
    if how == 3 then
      length = decide_rows(plan, now, random, count, run, limits, number, wanted, requests, at, length)
    else
      local alone = read_kind(plan, now, limits, requests, at, 0)
      for _ = 1, run do
        length = decide_kind(plan, random, count, limits, alone, length)
        if alone then asked[alone] = asked[alone] + 1 end
      end
    end
    at = at + 7 * limits
  end
  return length == 2 and answers[1] .. answers[2] or table.concat(answers, '', 1, length)
end

-- Writes what was charged, and what refusals leave to do.
local function write_all(random)
  if not charged then return end
  for bucket, algorithm in pairs(charged) do
    if bucket.added then algorithm.save(bucket) end
  end
  for bucket, algorithm in pairs(refused) do
    if not bucket.added then algorithm.settle(bucket, random) end
  end
end
