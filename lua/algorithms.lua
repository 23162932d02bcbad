-- What the scripts share: the algorithms by name, the time, and the walk over the limits of a call.
--
-- KEYS  those of each limit, in order
-- ARGV  two of the script's own, then for each limit: the word `shadow` if it only watches, its algorithm, and that
--       algorithm's arguments
-- Returns nothing; it stands before the scripts that do.
--
-- Invariant: every algorithm is a table of `keys` and `args` (how many it takes), and the functions
--   check(key, arg, now)         judges a limit and writes nothing; returns its bucket, with `granted`, `remaining`,
--                                `wait` (-1: never), `reset`, and `delay` if a slot lies ahead; or with `failure`, an
--                                error that ends the call; or one that is `unknown`, if what was sent does not say how to
--                                judge at `now`
--   charge(bucket, random)       takes what check() granted, and brings `remaining`, `reset` and `delay` up to date
--   settle(bucket, random)       after a refusal: writes nothing, unless the clock went back
--   give_back(key, arg, at, now) undoes what was granted at `at`, if it has not returned by itself

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

local function for_each_limit(visit)
  local key, arg = 1, 3
  while arg <= #ARGV do
    local shadow = ARGV[arg] == 'shadow'
    if shadow then arg = arg + 1 end
    local algorithm = algorithms[ARGV[arg]]
    visit(algorithm, key, arg + 1, shadow)
    key, arg = key + algorithm.keys, arg + 1 + algorithm.args
  end
end
