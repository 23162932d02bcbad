-- What the scripts share: the algorithms by name, and the plan of a call: which buckets it is about.
--
-- KEYS  for each limiter: those that its buckets share, then those of each bucket
-- ARGV  the limiters, a text of words that each end with a space: for each limiter its algorithm, that algorithm's arguments,
--       and how many buckets it has; then the script's own
-- Returns nothing; it stands before the scripts that do.
--
-- Invariant: every algorithm is a table of `shared_keys`, `keys` and `args` (how many it takes), `one_by_one` if no two
-- requests that are granted at the same moment are answered alike but for what remains, and the functions
--   limiter(key, words, at, now, before)  what the buckets of a limiter have in common, by its words from there on; made
--                                of what this said `before`, in another call, of the same words
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
  redisson = redisson,
}

-- A plan tells of each bucket by number its algorithm, its limiter and its first key; and whether there are any that have
-- to be opened before others are charged, since they have no take().
local function plan_for(text)
  local words, count, limiters = {}, 0, {}
  for word in string.gmatch(text, '([^ ]*) ') do
    count = count + 1
    words[count] = word
  end
  local plan = { words = words, limiters = limiters, algorithm_of = {}, limiter_of = {}, key_of = {} }
  local key, at, total = 1, 1, 0
  while at <= count do
    local algorithm = algorithms[words[at]]
    local of = { algorithm = algorithm, key = key, at = at + 1, first = total + 1 }
    limiters[#limiters + 1] = of
    plan.opens = plan.opens or not algorithm.take
    key, at = key + algorithm.shared_keys, at + 1 + algorithm.args
    for _ = 1, tonumber(words[at]) do
      total = total + 1
      plan.algorithm_of[total], plan.key_of[total], key = algorithm, key, key + algorithm.keys
    end
    of.last, at = total, at + 1
  end
  plan.total = total
  return plan
end

-- Plans by their texts: of this call and, where Redis keeps functions, of those before it, most of which are about the
-- same limiters; not without end.
local plans, plans_known = {}, 0

-- The plan of a call, with its limiters as they are now.
local function plan_now(now)
  local text = ARGV[1]
  local plan = plans[text]
  if not plan then
    if plans_known == 128 then plans, plans_known = {}, 0 end
    plan, plans_known = plan_for(text), plans_known + 1
    plans[text] = plan
  end
  local words, limiters = plan.words, plan.limiters
  for i = 1, #limiters do
    local of = limiters[i]
    local before = of.limiter
    local limiter = of.algorithm.limiter(of.key, words, of.at, now, before)
    if limiter ~= before then
      of.limiter = limiter
      for number = of.first, of.last do plan.limiter_of[number] = limiter end
    end
  end
  return plan
end
