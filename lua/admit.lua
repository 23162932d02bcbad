-- admit: decides a batch of requests, as if they had come one by one at the same moment. For each request, all live limits
-- are checked, then all are charged or none is. A shadow refuses no request: it is charged if its own bucket grants and the
-- live limits are charged.
--
-- KEYS  those of all buckets, limiter by limiter
-- ARGV  `admit`; the limiters, as words that each end with a space: for each its algorithm, that algorithm's arguments, and how many
--       buckets it has; the requests, packed little-endian, those in a row that are alike told once: how many there are
--       (u32), how many limits each has (u8), and for each limit its bucket by number, from 1 (u16), whether it only watches
--       (u8), and permits asked for (u32); random bytes for shared limits; now (ms; left out: the server's TIME)
-- Returns now (u64, ms) and the answers, packed little-endian: for each row of requests that were answered alike how many
--       (u32), then for each limit: whether it was granted (1), had a slot in future (2), or was refused (0) (u8), remaining
--       after the last of them (u32), reset (u48, ms), and delay or wait (i64, ms; -1: never, 0: ask again at once) unless
--       it was granted. No answers if a limit needs other boundaries of its calendar, those around now. Or the error of a
--       limit that cannot be judged
--
-- Invariant: a refused request changes no bucket, nor does one that could not be judged, and a shadow changes nothing but
-- its own. TIME is read once, and every bucket is read and written at most twice, whatever is asked of it. Nothing is
-- written before it is known that all buckets can be judged. Every algorithm in `algorithms` has `keys` and `args` (how many it takes),
-- `one_by_one` if no two requests that are granted at the same moment are answered alike, and the functions
--   limiter(words, now)          what the buckets of a limiter have in common; `unknown` if the words do not say how to judge
--   open(limiter, key, now)      a bucket as it is stored; with `failure`, an error that ends the call
--   check(bucket, permits)       is a request granted, how long does it wait (-1: for ever), and how long until its slot
--   tell(bucket)                 what remains, and how long until there will be more
--   charge(bucket, permits)      takes in memory what check() granted, more than none, and sets `added`
--   save(bucket, random)         writes what was charged
--   grant(limiter, key, permits)  optional: grants at once and returns what tell() says then, or nothing
--   settle(bucket, random)       after a refusal, if nothing was charged: takes nothing; writes what time or another rule made necessary
--   give_back(limiter, key, permits, at, now)  undoes what was granted at `at`, if it has not returned by itself

-- Calls `each` for every bucket that the words name, with its number, its algorithm, its limiter, its first key, and the
-- arguments of the limiter.
local function each_bucket(words, now, each)
  local next_word, number, key = string.gmatch(words, '([^ ]*) '), 1, 1
  for name in next_word do
    -- With room for the arguments of any algorithm: a table that grows costs as much as a command.
    local algorithm, arguments = algorithms[name], { nil, nil, nil, nil, nil, nil }
    for i = 1, algorithm.args do arguments[i] = next_word() end
    local limiter = algorithm.limiter(arguments, now)
    for _ = 1, next_word() do
      each(number, algorithm, limiter, key, arguments)
      number, key = number + 1, key + algorithm.keys
    end
  end
end

-- The buckets of a call, by number: algorithm, limiter, first key, and the bucket once it is open; false for one that has granted
-- requests at once, which is done only once. And the present request: what it asks of each limit, and the answers. Parallel lists,
-- made once: what they hold is of no use to the next call.
local laws, limiters, keys, buckets, present_moment = {}, {}, {}, {}, nil
local numbers, only_watches, asked, granted, later = {}, {}, {}, {}, {}

-- Opens the bucket of this number.
local function open(number)
  local bucket = buckets[number] or laws[number].open(limiters[number], keys[number], present_moment)
  buckets[number] = bucket
  return bucket
end

-- How many of these equal requests are granted with the same answer, except for what remains.
local function alike(count, limits)
  if count == 1 then return 1 end
  for i = 1, limits do
    local law, permits = laws[numbers[i]], asked[i]
    if granted[i] and permits > 0 then
      local most = law.one_by_one and 1 or math.floor(law.tell(buckets[numbers[i]]) / permits)
      if most < count then count = most end
    end
  end
  return count
end

-- Checks the request on the bucket of one of its limits; returns whether that lets it pass.
local function check(i)
  local yes, wait, delay = laws[numbers[i]].check(open(numbers[i]), asked[i])
  granted[i], later[i] = yes, delay or not yes and wait
  return yes or only_watches[i] == 1
end

-- Grants permits at once, of a bucket that the call has not looked at before. Returns what tell() says then, or nothing.
local function grant(number, permits)
  local law = laws[number]
  if buckets[number] ~= nil or permits == 0 or not law.grant then return end
  local remaining, reset = law.grant(limiters[number], keys[number], permits)
  if remaining then buckets[number] = false end
  return remaining, reset
end

-- Decides the first of so many requests that ask for the same, and with it all that are answered alike; adds the answer,
-- and returns how many they are. The last bucket that the call has not looked at may grant at once, if all others grant.
local function decide(count, limits, answers)
  local all, lone, most, at_once, resets = true, nil, count, nil, nil
  for i = 1, limits do
    if buckets[numbers[i]] == nil then lone = i end
  end
  for i = 1, limits do
    granted[i], later[i] = false, false
    if i ~= lone then all = check(i) and all end
  end
  if all then most = alike(count, limits) end
  if lone then
    if all then at_once, resets = grant(numbers[lone], most * asked[lone]) end
    if not at_once then
      all = check(lone) and all
      most = all and alike(count, limits) or count
    end
  end
  for i = 1, limits do
    local law, bucket, permits, yes, wait = laws[numbers[i]], buckets[numbers[i]], asked[i], granted[i], later[i]
    local said, remaining, reset = 1, at_once, resets
    if bucket then
      if not (all and yes) then
        bucket.added = bucket.added or false
      elseif permits > 0 then
        law.charge(bucket, most * permits)
      end
      said = not yes and 0 or wait and 2 or 1
      remaining, reset = law.tell(bucket)
    end
    answers[#answers + 1] = i == 1 and to_bytes('<I4BI4I6', most, said, remaining, reset)
      or to_bytes('<BI4I6', said, remaining, reset)
    if wait then answers[#answers + 1] = to_bytes('<i8', wait) end
  end
  return most
end

-- Decides all requests; returns the answers.
local function decide_all(requests)
  local at, answers = 1, { to_bytes('<I8', present_moment), nil, nil, nil }
  while at <= #requests do
    local left, limits, number, watches, permits
    left, limits, number, watches, permits, at = from_bytes('<I4BI2BI4', requests, at)
    numbers[1], only_watches[1], asked[1] = number, watches, permits
    for i = 2, limits do
      numbers[i], only_watches[i], asked[i], at = from_bytes('<I2BI4', requests, at)
    end
    local remaining, reset
    if limits == 1 then remaining, reset = grant(number, left * permits) end
    if remaining then
      answers[#answers + 1] = to_bytes('<I4BI4I6', left, 1, remaining, reset)
    else
      while left > 0 do left = left - decide(left, limits, answers) end
    end
  end
  return table.concat(answers)
end

local function admit(arguments)
  local random, now, count, failure, unknown = arguments[4], present(arguments[5] or ''), 0, nil, false
  present_moment = now
  each_bucket(arguments[2], now, function(number, law, limiter, key)
    laws[number], limiters[number], keys[number], buckets[number], count = law, limiter, key, nil, number
    unknown = unknown or limiter.unknown
    if not law.grant and not unknown then failure = failure or open(number).failure end
  end)
  if failure then return redis.error_reply(failure) end
  if unknown then return to_bytes('<I8', now) end
  local answers = decide_all(arguments[3])
  for number = 1, count do
    local bucket = buckets[number]
    if bucket and bucket.added then
      laws[number].save(bucket, random)
    elseif bucket and bucket.added == false then
      laws[number].settle(bucket, random)
    end
  end
  return answers
end
