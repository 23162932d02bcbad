-- What the scripts share: the algorithms by name, the time, and the walk over the buckets of a call.
--
-- KEYS  for each limiter: those that its buckets share, then those of each bucket
-- ARGV  three of the script's own, of which the third is how many limiters there are; then for each of them its algorithm,
--       that algorithm's arguments, and how many buckets it has
-- Returns nothing; it stands before the scripts that do.
--
-- Invariant: every algorithm is a table of `shared_keys`, `keys` and `args` (how many it takes), `one_by_one` if no two
-- requests that are granted at the same moment are answered alike but for what remains, and the functions
--   limiter(key, arg, now)       what the buckets of a limiter have in common
--   open(limiter, key, now)      a bucket as it is stored; with `failure`, an error that ends the call; or one that is
--                                `unknown`, if what was sent does not say how to judge at `now`
--   check(bucket, permits)       judges a request: is it granted, how long it has to wait (-1: never), and how long it is
--                                until its slot, if there are slots
--   tell(bucket)                 what remains, and how long it is until there will be more
--   charge(bucket, permits, random)  takes what check() granted; what is taken is `added`, and the next check() counts it
--   save(bucket)                 writes what was `added` in this call
--   settle(bucket, random)       after a refusal, if nothing was added: writes nothing, unless the clock went back
--   take(limiter, key, permits, willing)  where that is faster, all of this at once for a bucket that one request of the
--                                call asks for: charges it if it is granted and all its other limits are `willing`;
--                                returns what check() and tell() do
--   give_back(limiter, key, permits, at, now)  undoes what was granted at `at`, if it has not returned by itself

local algorithms = {
  token_bucket = token_bucket,
  gcra = gcra,
  leaky_bucket = leaky_bucket,
  fixed_window = fixed_window,
  sliding_window = sliding_window,
  foreign = foreign,
}

-- The moment to decide at, in milliseconds: as it is told, or the server's own. Read once for a call.
local function present(told)
  if told ~= '' then return tonumber(told) end
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Shows each limiter, with the first key of its first bucket, of its last bucket, and how many there are from one to the
-- next.
local function for_each_limiter(now, visit)
  local key, arg = 1, 4
  for _ = 1, tonumber(ARGV[3]) do
    local algorithm = algorithms[ARGV[arg]]
    local limiter = algorithm.limiter(key, arg + 1, now)
    key, arg = key + algorithm.shared_keys, arg + 1 + algorithm.args
    local next_key = key + tonumber(ARGV[arg]) * algorithm.keys
    visit(algorithm, limiter, key, next_key - 1, algorithm.keys)
    key, arg = next_key, arg + 1
  end
end
