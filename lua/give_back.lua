-- give_back: undoes the charges of a request that nobody received.
--
-- KEYS  those of each limit, in order (see the algorithms' files)
-- ARGV  now (ms; empty: the server's TIME), when each was granted (ms, or of its slot; separated by spaces), then for
--       each limit: its algorithm, and that algorithm's arguments
-- Returns an empty list.
--
-- Invariant: no bucket holds more than if the request had never been; what has returned by itself is left alone.

local now, next_time = present(ARGV[1]), string.gmatch(ARGV[2], '%d+')
for_each_limit(function(algorithm, key, arg) algorithm.give_back(key, arg, tonumber(next_time()), now) end)
return {}
