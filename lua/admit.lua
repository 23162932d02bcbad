-- admit: decides a list of limits as one. All are checked, then all are charged or none is.
--
-- KEYS  those of each limit, in order (see the algorithms' files)
-- ARGV  now (ms; empty: the server's TIME), random bytes (8 of ours; 16 are written as they are), then for each limit:
--       its algorithm, and that algorithm's arguments
-- Returns now, then for each limit: granted (1, 0), remaining, wait (ms; -1: never), reset (ms),
--         delay (ms); now alone if a limit needs other boundaries of its calendar, those around now
--
-- Invariant: a refused request changes no bucket, and one that could not be judged neither. TIME is read once, so that all limits judge the same moment.

local now, random = present(ARGV[1]), ARGV[2]

local buckets, granted, known = {}, true, true
for_each_limit(function(algorithm, key, arg)
  local bucket = algorithm.check(key, arg, now)
  bucket.algorithm = algorithm
  granted, known = granted and bucket.granted, known and not bucket.unknown
  buckets[#buckets + 1] = bucket
end)

local answer = { now }
if not known then return answer end
for _, bucket in ipairs(buckets) do
  if granted then bucket.algorithm.charge(bucket, random) else bucket.algorithm.settle(bucket, random) end
  answer[#answer + 1] = bucket.granted and 1 or 0
  answer[#answer + 1] = bucket.remaining
  answer[#answer + 1] = bucket.wait
  answer[#answer + 1] = bucket.reset
  answer[#answer + 1] = bucket.delay or 0
end
return answer
