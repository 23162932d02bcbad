-- admit: decides requests, each over a list of limits as one, as if they had come one by one at the same moment. All live
-- limits of a request are checked, then all are charged or none is. A shadow only watches: it is charged if the live ones
-- are and it has granted by itself.
--
-- KEYS  those of each limiter and its buckets, in order (see algorithms.lua)
-- ARGV  now (ms; empty: the server's TIME), random bytes (8 of ours; 16 are written as they are), the limiters and their
--       buckets (see algorithms.lua), and last the requests, packed little-endian: for each kind of request how many in
--       a row (u32) and how many limits (u8, at least one); for each limit its bucket by number, from 1 (u16), whether it only watches
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

local buckets, algorithm_of, known, failure

-- Reads all buckets.
local function open(doubting)
  buckets, algorithm_of, known, failure = {}, {}, true, nil
  local number = 0
  for_each_limiter(now, doubting, function(algorithm, limiter, first, last, step)
    for key = first, last, step do
      local bucket = algorithm.open(limiter, key, now)
      number = number + 1
      buckets[number], algorithm_of[number] = bucket, algorithm
      known = known and not bucket.unknown
      failure = failure or bucket.failure
    end
  end)
end

-- The buckets that were not charged by some request, with their algorithms.
local refused

-- How many of so many requests are granted alike, each with the same answer but for what remains.
local function alike(count, limits, asked, algorithms, permits, granted)
  for i = 1, limits do
    if granted[i] and permits[i] > 0 then
      local most = algorithms[i].one_by_one and 1 or math.floor(algorithms[i].tell(asked[i]) / permits[i])
      count = math.min(count, most)
    end
  end
  return count
end

-- Decides all requests, in memory; returns the answers. It is one function with variables of its own, since every call
-- and every variable of another function would cost as much as what they are for.
local function decide()
  local pack, unpack_bytes, requests, at = struct.pack, struct.unpack, ARGV[#ARGV], 1
  -- What a request of the present kind asks: of each limit its bucket, permits, and whether it only watches.
  local asked, algorithms, permits, watches = {}, {}, {}, {}
  -- What its limits say.
  local granted, waits, delays = {}, {}, {}
  local answers, length = {}, 0
  refused = {}
  while at <= #requests do
    local left, limits, number, shadow
    left, limits, number, shadow, permits[1], at = unpack_bytes('<I4BI2BI4', requests, at)
    asked[1], algorithms[1], watches[1] = buckets[number], algorithm_of[number], shadow == 1
    for i = 2, limits do
      number, shadow, permits[i], at = unpack_bytes('<I2BI4', requests, at)
      asked[i], algorithms[i], watches[i] = buckets[number], algorithm_of[number], shadow == 1
    end
    while left > 0 do
      local all, count = true, left
      for i = 1, limits do
        granted[i], waits[i], delays[i] = algorithms[i].check(asked[i], permits[i])
        all = all and (granted[i] or watches[i])
      end
      if all and left > 1 then count = alike(left, limits, asked, algorithms, permits, granted) end
      for i = 1, limits do
        local bucket, of, said, later = asked[i], algorithms[i], 1, delays[i]
        if all and granted[i] then of.charge(bucket, count * permits[i], random) else refused[bucket] = of end
        if not granted[i] then said, later = 0, waits[i] elseif later then said = 2 end
        local remaining, reset = of.tell(bucket)
        local bytes = i == 1 and pack('<I4BI4I6', count, said, remaining, reset) or pack('<BI4I6', said, remaining, reset)
        length = length + 1
        answers[length] = later and bytes .. pack('<i8', later) or bytes
      end
      left = left - count
    end
  end
  return table.concat(answers)
end

-- Are the buckets what they seemed? If not, what was done to learn it is undone.
local function confirm()
  local sure = true
  for number = 1, #buckets do
    local bucket, of = buckets[number], algorithm_of[number]
    if of.doubted or (bucket.added and of.confirm and not of.confirm(bucket)) then sure = false end
  end
  for number = 1, sure and 0 or #buckets do
    local bucket, of = buckets[number], algorithm_of[number]
    if bucket.added and of.retract then of.retract(bucket) end
  end
  return sure
end

open(false)
if failure then return redis.error_reply(failure) end
if not known then return { now, '' } end
local answers = decide()
if not confirm() then
  open(true)
  answers = decide()
  confirm()
end
for number = 1, #buckets do
  local bucket = buckets[number]
  if bucket.added then algorithm_of[number].save(bucket) end
end
for bucket, algorithm in pairs(refused) do
  if not bucket.added then algorithm.settle(bucket, random) end
end
return { now, answers }
