-- admit: decides a list of limits as one. All are checked, then all live ones are charged or none is. A shadow only
-- watches: it is charged if the live ones are and it has granted by itself.
--
-- KEYS  those of each limit, in order (see the algorithms' files)
-- ARGV  now (ms; empty: the server's TIME), random bytes (8 of ours; 16 are written as they are), then for each limit:
--       the word `shadow` if it only watches, its algorithm, and that algorithm's arguments
-- Returns now, then for each limit: granted (1, 0), remaining, wait (ms; -1: never, 0: ask again at once), reset (ms),
--         delay (ms); or the error of a limit that cannot be judged; or now alone if a limit needs other boundaries of its
--         calendar, those around now
--
-- Invariant: a refused request changes no bucket, nor does one that could not be judged, and a shadow changes nothing but
-- its own. TIME is read once, so that
-- all limits judge the same moment.

local now, random = present(ARGV[1]), ARGV[2]

local buckets, granted, known, failure = {}, true, true, nil
for_each_limit(function(algorithm, key, arg, shadow)
  local bucket = algorithm.check(key, arg, now)
  bucket.algorithm = algorithm
  granted = granted and (shadow or bucket.granted)
  known = known and not bucket.unknown
  failure = failure or bucket.failure
  buckets[#buckets + 1] = bucket
end)
if failure then return redis.error_reply(failure) end

local answer = { now }
if not known then return answer end
for _, bucket in ipairs(buckets) do
  local move = granted and bucket.granted and 'charge' or 'settle'
  bucket.algorithm[move](bucket, random)
  answer[#answer + 1] = bucket.granted and 1 or 0
  answer[#answer + 1] = bucket.remaining
  answer[#answer + 1] = bucket.wait
  answer[#answer + 1] = bucket.reset
  answer[#answer + 1] = bucket.delay or 0
end
return answer
