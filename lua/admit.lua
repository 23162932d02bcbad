-- admit: decides requests, each over a list of limits as one, as if they had come one by one at the same moment. All live
-- limits of a request are checked, then all are charged or none is. A shadow only watches: it is charged if the live ones
-- are and it has granted by itself.
--
-- KEYS  those of each limiter and its buckets, in order (see algorithms.lua)
-- ARGV  now (ms; empty: the server's TIME), random bytes (8 of ours; 16 are written as they are), the limiters and their
--       buckets (see algorithms.lua), and last the requests, packed little-endian: for each kind of request how many in
--       a row (u32) and how many limits (u8); for each limit its bucket by number, from 1 (u16), whether it only watches
--       (u8), permits asked for (u32)
-- Returns now and the answers, packed little-endian: for each row of requests that were answered alike how many (u32),
--       then for each limit: whether it was granted (1), had a slot in future (2), or was refused (0) (u8), remaining
--       after the last of them (u32), reset (u48, ms), and delay or wait (i64, ms; -1: never, 0: ask again at once) unless
--       it was granted. No answers if a limit needs other boundaries of its calendar, those around now. Or the error of a
--       limit that cannot be judged
--
-- Invariant: a refused request changes no bucket, nor does one that could not be judged, and a shadow changes nothing but
-- its own. TIME is read once, and every bucket read and written at most once, whatever is asked of it.

local now, random = present(ARGV[1]), ARGV[2]

local buckets, algorithm_of, known, failure = {}, {}, true, nil
for_each_bucket(now, function(algorithm, limiter, key)
  local bucket = algorithm.open(limiter, key, now)
  known = known and not bucket.unknown
  failure = failure or bucket.failure
  local number = #buckets + 1
  buckets[number], algorithm_of[number] = bucket, algorithm
end)
if failure then return redis.error_reply(failure) end
if not known then return { now, '' } end

local pack, unpack_bytes = struct.pack, struct.unpack

-- What a request of the present kind asks: so many limits, and of each its bucket, permits, and whether it only watches.
local limits, asked, algorithm_asked, permits, watches = 0, {}, {}, {}, {}
-- What its limits say.
local granted, waits, delays, refused = {}, {}, {}, {}

-- Reads the next kind; how many requests there are of it, and where the one after it begins.
local function next_kind(requests, at)
  local count, number, shadow
  count, limits, at = unpack_bytes('<I4B', requests, at)
  for i = 1, limits do
    number, shadow, permits[i], at = unpack_bytes('<I2BI4', requests, at)
    asked[i], algorithm_asked[i], watches[i] = buckets[number], algorithm_of[number], shadow == 1
  end
  return count, at
end

-- Do all live limits grant a request?
local function check()
  local all = true
  for i = 1, limits do
    granted[i], waits[i], delays[i] = algorithm_asked[i].check(asked[i], permits[i])
    all = all and (granted[i] or watches[i])
  end
  return all
end

-- How many of so many requests are granted alike, each with the same answer but for what remains.
local function alike(count)
  for i = 1, limits do
    if granted[i] and permits[i] > 0 then
      local most = algorithm_asked[i].one_by_one and 1 or math.floor(algorithm_asked[i].tell(asked[i]) / permits[i])
      count = math.min(count, most)
    end
  end
  return count
end

local function charge(count)
  for i = 1, limits do
    if granted[i] then algorithm_asked[i].charge(asked[i], count * permits[i], random) else refused[asked[i]] = algorithm_asked[i] end
  end
end

local function refuse()
  for i = 1, limits do refused[asked[i]] = algorithm_asked[i] end
end

local answers, length = {}, 0

local function answer(count)
  answers[length + 1] = pack('<I4', count)
  for i = 1, limits do
    local remaining, reset = algorithm_asked[i].tell(asked[i])
    local bytes
    if not granted[i] then
      bytes = pack('<BI4I6i8', 0, remaining, reset, waits[i])
    elseif delays[i] then
      bytes = pack('<BI4I6i8', 2, remaining, reset, delays[i])
    else
      bytes = pack('<BI4I6', 1, remaining, reset)
    end
    answers[length + 1 + i] = bytes
  end
  length = length + 1 + limits
end

local requests, at = ARGV[#ARGV], 1
while at <= #requests do
  local left, count
  left, at = next_kind(requests, at)
  while left > 0 do
    count = left
    if not check() then
      refuse()
    else
      if left > 1 then count = alike(left) end
      charge(count)
    end
    answer(count)
    left = left - count
  end
end

for number, bucket in ipairs(buckets) do
  if bucket.added then algorithm_of[number].save(bucket) end
end
for bucket, algorithm in pairs(refused) do
  if not bucket.added then algorithm.settle(bucket, random) end
end
return { now, table.concat(answers) }
