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
--       then for each limit: granted (u8), remaining after the last of them (u32), wait (i64, ms; -1: never, 0: ask again
--       at once), reset (i64, ms), delay (i64, ms). No answers if a limit needs other boundaries of its calendar, those
--       around now. Or the error of a limit that cannot be judged
--
-- Invariant: a refused request changes no bucket, nor does one that could not be judged, and a shadow changes nothing but
-- its own. TIME is read once, and every bucket read and written at most once, whatever is asked of it.

local now, random = present(ARGV[1]), ARGV[2]

local buckets, known, failure = {}, true, nil
for_each_bucket(function(algorithm, limiter, key)
  local bucket = algorithm.open(limiter, key, now)
  bucket.algorithm = algorithm
  known = known and not bucket.unknown
  failure = failure or bucket.failure
  buckets[#buckets + 1] = bucket
end)
if failure then return redis.error_reply(failure) end
if not known then return { now, '' } end

-- The limits of the next kind of request, how many requests there are of it, and where the one after it begins.
local function next_kind(requests, at)
  local count, limits, kind = 0, 0, {}
  count, limits, at = struct.unpack('<I4B', requests, at)
  for i = 1, limits do
    local number, shadow, permits
    number, shadow, permits, at = struct.unpack('<I2BI4', requests, at)
    kind[i] = { bucket = buckets[number], shadow = shadow == 1, permits = permits }
  end
  return kind, count, at
end

-- Do all live limits grant a request?
local function check(kind)
  local granted = true
  for _, limit in ipairs(kind) do
    limit.bucket.algorithm.check(limit.bucket, limit.permits)
    granted = granted and (limit.shadow or limit.bucket.granted)
  end
  return granted
end

-- Charges as many requests of a kind as are answered alike, and says how many those are.
local function charge(kind, count)
  for _, limit in ipairs(kind) do
    if limit.bucket.granted then count = math.min(count, limit.bucket.alike) end
  end
  for _, limit in ipairs(kind) do
    local bucket = limit.bucket
    if bucket.granted then bucket.algorithm.charge(bucket, count * limit.permits, random) else bucket.refused = true end
  end
  return count
end

local function refuse(kind)
  for _, limit in ipairs(kind) do limit.bucket.refused = true end
end

local answers = {}

local function answer(kind, count)
  answers[#answers + 1] = struct.pack('<I4', count)
  for _, limit in ipairs(kind) do
    local bucket = limit.bucket
    answers[#answers + 1] = struct.pack('<BI4i8i8i8', bucket.granted and 1 or 0, bucket.remaining, bucket.wait, bucket.reset, bucket.delay)
  end
end

local requests, at = ARGV[#ARGV], 1
while at <= #requests do
  local kind, left
  kind, left, at = next_kind(requests, at)
  while left > 0 do
    local alike = left
    if check(kind) then alike = charge(kind, left) else refuse(kind) end
    answer(kind, alike)
    left = left - alike
  end
end

for _, bucket in ipairs(buckets) do
  if bucket.added then bucket.algorithm.save(bucket) end
end
for _, bucket in ipairs(buckets) do
  if bucket.refused and not bucket.added then bucket.algorithm.settle(bucket, random) end
end
return { now, table.concat(answers) }
