-- admit: decides requests, each over a list of limits as one, as if they had come one by one at the same moment. All live
-- limits of a request are checked, then all are charged or none is. A shadow only watches: it is charged if the live ones
-- are and it has granted by itself.
--
-- KEYS  those of each limiter and its buckets, in order (see algorithms.lua)
-- ARGV  now (ms; empty: the server's TIME), random bytes (8 of ours; 16 are written as they are), the limiters and their
--       buckets (see algorithms.lua), and last the requests, packed little-endian: for each kind of request how many in
--       a row (u32) and how many limits (u8, at least one); for each limit its bucket by number, from 1 (u16), whether it
--       only watches (1) or is the only one of the call to ask for that bucket (2, for one limit of a request, whose
--       algorithm has a take(); else 0) (u8), permits asked for (u32)
-- Returns now and the answers, packed little-endian: for each row of requests that were answered alike how many (u32),
--       then for each limit: whether it was granted (1), had a slot in future (2), or was refused (0) (u8), remaining
--       after the last of them (u32), reset (u48, ms), and delay or wait (i64, ms; -1: never, 0: ask again at once) unless
--       it was granted. No answers if a limit needs other boundaries of its calendar, those around now. Or the error of a
--       limit that cannot be judged
--
-- Invariant: a refused request changes no bucket, nor does one that could not be judged, and a shadow changes nothing but
-- its own. TIME is read once, and every bucket read and written at most once, whatever is asked of it. Nothing is written
-- before all buckets that could not be judged are known.

local now, random = present(ARGV[1]), ARGV[2]

-- By number: buckets, or what it takes to open them when they are first asked for.
local buckets, algorithm_of, limiter_of, key_of = {}, {}, {}, {}
local total, known, failure = 0, true, nil
for_each_limiter(now, function(algorithm, limiter, first, last, step)
  for key = first, last, step do
    total = total + 1
    algorithm_of[total], limiter_of[total], key_of[total] = algorithm, limiter, key
    if not algorithm.take then
      local bucket = algorithm.open(limiter, key, now)
      buckets[total] = bucket
      known = known and not bucket.unknown
      failure = failure or bucket.failure
    end
  end
end)
if failure then return redis.error_reply(failure) end
if not known then return { now, '' } end

local function open(number)
  local bucket = buckets[number]
  if not bucket then
    bucket = algorithm_of[number].open(limiter_of[number], key_of[number], now)
    buckets[number] = bucket
  end
  return bucket
end

-- The buckets that were charged, and those that were not charged by some request; with their algorithms.
local charged, refused = {}, {}

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

-- Decides all requests, in memory but for buckets that are asked for once; returns the answers. It is one function with
-- variables of its own, since every call and every variable of another function would cost as much as what they are for.
local function decide()
  local pack, unpack_bytes, requests, at = struct.pack, struct.unpack, ARGV[#ARGV], 1
  -- What a request of the present kind asks: of each limit its bucket, permits, and whether it only watches.
  local asked, algorithms, permits, watches = {}, {}, {}, {}
  -- What its limits say.
  local granted, waits, delays = {}, {}, {}
  local answers, length = {}, 0
  while at <= #requests do
    local alone
    local left, limits, number, how, wanted, after = unpack_bytes('<I4BI2BI4', requests, at)
    if limits == 1 and how == 2 then
      local is_granted, wait, remaining, reset = algorithm_of[number].take(limiter_of[number], key_of[number], wanted, true)
      local answer = pack('<I4BI4I6', 1, is_granted and 1 or 0, remaining, reset)
      length, left = length + 1, 0
      answers[length] = is_granted and answer or answer .. pack('<i8', wait)
    else
      after = at + 5
      for i = 1, limits do
        number, how, permits[i], after = unpack_bytes('<I2BI4', requests, after)
        algorithms[i], watches[i] = algorithm_of[number], how == 1
        if how == 2 then alone, asked[i] = i, number else asked[i] = open(number) end
      end
    end
    at = after
    while left > 0 do
      local all, count, alone_remaining, alone_reset = true, left, nil, nil
      for i = 1, limits do
        if i ~= alone then
          granted[i], waits[i], delays[i] = algorithms[i].check(asked[i], permits[i])
          all = all and (granted[i] or watches[i])
        end
      end
      if alone then
        number, delays[alone] = asked[alone], nil
        granted[alone], waits[alone], alone_remaining, alone_reset =
          algorithms[alone].take(limiter_of[number], key_of[number], permits[alone], all)
        all = all and granted[alone]
      elseif all and left > 1 then
        count = alike(left, limits, asked, algorithms, permits, granted)
      end
      for i = 1, limits do
        local said, later, remaining, reset = 1, delays[i], alone_remaining, alone_reset
        if i ~= alone then
          local bucket, of = asked[i], algorithms[i]
          if all and granted[i] then
            of.charge(bucket, count * permits[i], random)
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
  end
  return table.concat(answers)
end

local answers = decide()
for bucket, algorithm in pairs(charged) do
  if bucket.added then algorithm.save(bucket) end
end
for bucket, algorithm in pairs(refused) do
  if not bucket.added then algorithm.settle(bucket, random) end
end
return { now, answers }
