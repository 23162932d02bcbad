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
--   charge(bucket, permits)      takes in memory what check() granted, and sets `added`
--   save(bucket, random)         writes what was charged
--   grant(limiter, key, permits)  optional: grants at once and returns what tell() says then, or nothing and what was read
--   settle(bucket, random)       after a refusal, if nothing was charged: takes nothing; writes what time or another rule made necessary
--   give_back(limiter, key, permits, at, now)  undoes what was granted at `at`, if it has not returned by itself

-- Calls `each` for every bucket that the words name, with its number, its algorithm, its limiter, its first key, and the
-- arguments of the limiter.
local function each_bucket(words, now, each)
  local next_word, number, key = string.gmatch(words, '([^ ]*) '), 1, 1
  for name in next_word do
    local algorithm, arguments = algorithms[name], {}
    for i = 1, algorithm.args do arguments[i] = next_word() end
    local limiter = algorithm.limiter(arguments, now)
    for _ = 1, next_word() do
      each(number, algorithm, limiter, key, arguments)
      number, key = number + 1, key + algorithm.keys
    end
  end
end

-- The buckets of a call, by number: algorithm, limiter, first key, and the open bucket; false for one that has granted a
-- request at once, which is done only once.
local laws, limiters, keys, buckets, present_moment

-- The present request: what it asks of each limit, and the answers. Parallel lists, made once, since creating a table costs as
-- much as a small command.
local numbers, only_watches, asked, granted, later = {}, {}, {}, {}, {}

-- Opens the bucket of this number; `chunk` is the part of it that was read before, if any.
local function open(number, chunk)
  local bucket = buckets[number] or laws[number].open(limiters[number], keys[number], present_moment, chunk)
  buckets[number] = bucket
  return bucket
end

-- Checks the request on the bucket of one of its limits.
local function check(i, chunk)
  local number = numbers[i]
  local yes, wait, delay = laws[number].check(open(number, chunk), asked[i])
  granted[i], later[i] = yes, delay or not yes and wait
  return yes or only_watches[i]
end

-- How many of these equal requests are granted with the same answer, except for what remains.
local function alike(count, limits)
  for i = 1, limits do
    local law, permits = laws[numbers[i]], asked[i]
    if granted[i] and permits > 0 then
      local most = law.one_by_one and 1 or math.floor(law.tell(buckets[numbers[i]]) / permits)
      if most < count then count = most end
    end
  end
  return count
end

-- Decides the first of so many requests that ask for the same, and with it all that are answered alike; adds the answer,
-- and returns how many they are. What limit number `lone` asks for may be granted at once, if all others grant.
local function decide(count, limits, lone, answers)
  local all, left, resets = true, nil, nil
  for i = 1, limits do
    if i ~= lone and not check(i) then all = false end
  end
  if lone then
    local number = numbers[lone]
    if all then left, resets = laws[number].grant(limiters[number], keys[number], asked[lone]) end
    if left then buckets[number] = false elseif not check(lone, resets) then all = false end
  end
  if all and count > 1 then count = alike(count, limits) end
  for i = 1, limits do
    local remaining, reset, said, wait = left, resets, 1, nil
    if not left or i ~= lone then
      local law, bucket, yes = laws[numbers[i]], buckets[numbers[i]], granted[i]
      if all and yes then law.charge(bucket, count * asked[i]) else bucket.added = bucket.added or false end
      remaining, reset = law.tell(bucket)
      wait = later[i]
      if not yes then said = 0 elseif wait then said = 2 end
    end
    answers[#answers + 1] = i == 1 and to_bytes('<I4BI4I6', count, said, remaining, reset)
      or to_bytes('<BI4I6', said, remaining, reset)
    if wait then answers[#answers + 1] = to_bytes('<i8', wait) end
  end
  return count
end

-- Decides a request for one bucket that the call has not looked at before, if it is granted at once; adds the answer. Returns how
-- many requests are left to decide.
local function grant_alone(number, permits, answers)
  local remaining, reset = laws[number].grant(limiters[number], keys[number], permits)
  if not remaining then
    open(number, reset)
    return 1
  end
  buckets[number] = false
  answers[#answers + 1] = to_bytes('<I4BI4I6', 1, 1, remaining, reset)
  return 0
end

-- Decides all requests; returns the answers.
local function decide_all(requests)
  local at, length, answers = 1, #requests, { to_bytes('<I8', present_moment) }
  while at <= length do
    local left, limits, number, watches, permits, lone
    left, limits, number, watches, permits, at = from_bytes('<I4BI2BI4', requests, at)
    if left == 1 and limits == 1 and permits > 0 and buckets[number] == nil then
      left = grant_alone(number, permits, answers)
    end
    if left > 0 then
      for i = 1, limits do
        if i > 1 then number, watches, permits, at = from_bytes('<I2BI4', requests, at) end
        numbers[i], only_watches[i], asked[i] = number, watches == 1, permits
        if left == 1 and permits > 0 and buckets[number] == nil then
          if lone then open(numbers[lone]) end
          lone = buckets[number] == nil and i or nil
        end
      end
    end
    while left > 0 do left = left - decide(left, limits, lone, answers) end
  end
  return table.concat(answers)
end

local function admit(arguments)
  local random, now, failure, unknown = arguments[4], present(arguments[5] or ''), nil, false
  laws, limiters, keys, buckets, present_moment = {}, {}, {}, {}, now
  each_bucket(arguments[2], now, function(number, law, limiter, key)
    laws[number], limiters[number], keys[number] = law, limiter, key
    unknown = unknown or limiter.unknown
    if not law.grant and not unknown then failure = failure or open(number).failure end
  end)
  if failure then return redis.error_reply(failure) end
  if unknown then return to_bytes('<I8', now) end
  local answers = decide_all(arguments[3])
  for number, bucket in pairs(buckets) do
    if bucket and bucket.added then
      laws[number].save(bucket, random)
    elseif bucket and bucket.added == false then
      laws[number].settle(bucket, random)
    end
  end
  return answers
end
