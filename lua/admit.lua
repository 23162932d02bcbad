-- admit: decides a list of limits as one. All are checked, then all are charged or none is.
--
-- KEYS  those of each limit, in order (see the algorithms' files)
-- ARGV  now (ms; empty: the server's TIME), random bytes (8 of ours; 16 are written as they are), then for each limit:
--       its algorithm, and that algorithm's arguments
-- Returns now, then for each limit: granted (1, 0), remaining, wait (ms; -1: never), reset (ms)
--
-- Invariant: a refused request changes no bucket. TIME is read once, so that all limits judge the same moment.

local algorithms = { token_bucket = token_bucket }

local now, random = tonumber(ARGV[1]), ARGV[2]
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

local buckets, granted = {}, true
local key, arg = 1, 3
while arg <= #ARGV do
  local algorithm = algorithms[ARGV[arg]]
  local bucket = algorithm.check(key, arg + 1, now)
  bucket.algorithm, bucket.arg = algorithm, arg + 1
  granted = granted and bucket.granted
  buckets[#buckets + 1] = bucket
  key, arg = key + algorithm.keys, arg + 1 + algorithm.args
end

local answer = { now }
for _, bucket in ipairs(buckets) do
  if granted then bucket.algorithm.charge(bucket, random) else bucket.algorithm.settle(bucket, random) end
  answer[#answer + 1] = bucket.granted and 1 or 0
  answer[#answer + 1] = bucket.remaining
  answer[#answer + 1] = bucket.wait
  answer[#answer + 1] = bucket.reset
end
return answer
