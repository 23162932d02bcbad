-- give_back: undoes the charges of a request that nobody received.
--
-- KEYS  those of each limiter and its buckets, in order (see algorithms.lua)
-- ARGV  the limiters and their buckets (see algorithms.lua), for each bucket what it was charged and when (permits and ms, or
--       those of its slot; separated by spaces), now (ms; left out: the server's TIME)
-- Returns an empty list.
--
-- Invariant: no bucket holds more than if the request had never been; what has returned by itself is left alone.

local now, next_number = present(ARGV[3] or ''), string.gmatch(ARGV[2], '%d+')
local plan = plan_now(now)
for number = 1, plan.total do
  local permits, at = tonumber(next_number()), tonumber(next_number())
  plan.algorithm_of[number].give_back(plan.limiter_of[number], plan.key_of[number], permits, at, now)
end
return {}
