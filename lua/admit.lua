-- admit: decides requests, each over a list of limits as one, as if they had come one by one at the same moment. All live
-- limits of a request are checked, then all are charged or none is. A shadow only watches: it is charged if the live ones
-- are and it has granted by itself.
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
-- its own. TIME is read once, and every bucket is read and written at most once, whatever is asked of it. Nothing is
-- written before all buckets could be judged. Every algorithm in `algorithms` has `keys` and `args` (how many it takes),
-- `one_by_one` if no two requests that are granted at the same moment are answered alike, and the functions
--   limiter(words, now)          what the buckets of a limiter have in common; `unknown` if the words do not say how to judge
--   open(limiter, key, now)      a bucket as it is stored; with `failure`, an error that ends the call
--   check(bucket, permits)       is a request granted, how long does it wait (-1: for ever), and how long until its slot
--   tell(bucket)                 what remains, and how long until there will be more
--   charge(bucket, permits)      takes in memory what check() granted, and sets `added`
--   save(bucket, random)         writes what was charged
--   settle(bucket, random)       after a refusal, if nothing was charged: writes nothing, unless the clock went back
--   give_back(limiter, key, permits, at, now)  undoes what was granted at `at`, if it has not returned by itself

-- Calls `each` for every limiter that the words tell of: with its algorithm, its first key, how many buckets it has, and its
-- arguments.
local function each_limiter(words, now, each)
  local next_word, key = string.gmatch(words, '([^ ]*) '), 1
  for name in next_word do
    local algorithm, arguments = algorithms[name], {}
    for i = 1, algorithm.args do arguments[i] = next_word() end
    local buckets = tonumber(next_word())
    each(algorithm, algorithm.limiter(arguments, now), key, buckets, arguments)
    key = key + buckets * algorithm.keys
  end
end

-- All buckets, and their algorithms; what is wrong with one of them, and whether one is unknown.
local function open_all(words, now)
  local buckets, laws, number, failure, unknown = {}, {}, 0, nil, false
  each_limiter(words, now, function(algorithm, limiter, key, count)
    local open, keys = algorithm.open, algorithm.keys
    unknown = unknown or limiter.unknown
    for i = 0, limiter.unknown and -1 or count - 1 do
      local bucket = open(limiter, key + i * keys, now)
      number = number + 1
      buckets[number], laws[number], failure = bucket, algorithm, failure or bucket.failure
    end
  end)
  return buckets, laws, failure, unknown
end

-- What the requests that are being decided ask of each limit, and what it says: as lists beside each other, made once, since
-- a table costs as much as a small command.
local asked_buckets, asked_laws, asked_permits, only_watches, granted, later = {}, {}, {}, {}, {}, {}

-- How many of so many requests are granted alike, each with the same answer but for what remains.
local function alike(count, limits)
  for i = 1, limits do
    local permits = asked_permits[i]
    if granted[i] and permits > 0 then
      local law = asked_laws[i]
      local most = law.one_by_one and 1 or math.floor(law.tell(asked_buckets[i]) / permits)
      if most < count then count = most end
    end
  end
  return count
end

-- Decides the first of so many requests that ask for the same, and with it all that are answered alike; adds the answer,
-- and returns how many they are.
local function decide(count, limits, answers)
  local all = true
  for i = 1, limits do
    local yes, wait, delay = asked_laws[i].check(asked_buckets[i], asked_permits[i])
    granted[i], later[i] = yes, delay or not yes and wait
    all = all and (yes or only_watches[i])
  end
  if all and count > 1 then count = alike(count, limits) end
  for i = 1, limits do
    local bucket, law, said, yes, wait = asked_buckets[i], asked_laws[i], 1, granted[i], later[i]
    if all and yes then law.charge(bucket, count * asked_permits[i]) else bucket.added = bucket.added or false end
    if not yes then said = 0 elseif wait then said = 2 end
    local remaining, reset = law.tell(bucket)
    answers[#answers + 1] = i == 1 and to_bytes('<I4BI4I6', count, said, remaining, reset)
      or to_bytes('<BI4I6', said, remaining, reset)
    if wait then answers[#answers + 1] = to_bytes('<i8', wait) end
  end
  return count
end

-- Decides all requests; returns the answers.
local function decide_all(buckets, laws, now, requests)
  local at, length, answers = 1, #requests, { to_bytes('<I8', now) }
  while at <= length do
    local left, limits, number, watches, permits
    left, limits, number, watches, permits, at = from_bytes('<I4BI2BI4', requests, at)
    asked_buckets[1], asked_laws[1], only_watches[1], asked_permits[1] = buckets[number], laws[number], watches == 1, permits
    for i = 2, limits do
      number, watches, permits, at = from_bytes('<I2BI4', requests, at)
      asked_buckets[i], asked_laws[i], only_watches[i], asked_permits[i] = buckets[number], laws[number], watches == 1, permits
    end
    while left > 0 do left = left - decide(left, limits, answers) end
  end
  return table.concat(answers)
end

local function admit(arguments)
  local words, requests, random, now = arguments[2], arguments[3], arguments[4], present(arguments[5] or '')
  local buckets, laws, failure, unknown = open_all(words, now)
  if failure then return redis.error_reply(failure) end
  if unknown then return to_bytes('<I8', now) end
  local answers = decide_all(buckets, laws, now, requests)
  for i, bucket in ipairs(buckets) do
    if bucket.added then
      laws[i].save(bucket, random)
    elseif bucket.added == false then
      laws[i].settle(bucket, random)
    end
  end
  return answers
end
