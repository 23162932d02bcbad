-- give_back: undoes the charges of a request that reached no upstream.
--
-- KEYS  those of all buckets, limiter by limiter
-- ARGV  `give_back`; the limiters, as admit.lua takes them; for each bucket what it was charged and when (permits and ms, or those of its
--       slot; separated by spaces); now (ms; left out: the server's TIME)
-- Returns an empty list.
--
-- Invariant: no bucket holds more than if the request had never been; what has returned by itself is left alone.

local function give_back(arguments)
  local now, next_number = present(arguments[4] or ''), string.gmatch(arguments[3], '%d+')
  each_bucket(arguments[2], now, function(_, algorithm, limiter, key)
    local permits, at = tonumber(next_number()), tonumber(next_number())
    if permits > 0 then algorithm.give_back(limiter, key, permits, at, now) end
  end)
  return {}
end
