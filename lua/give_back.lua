-- give_back: undoes the charges of a request that nobody received.
--
-- KEYS  those of each limit, in order (see the algorithms' files)
-- ARGV  now (ms; empty: the server's TIME), when they were granted (ms), then for each limit: its algorithm, and that
--       algorithm's arguments
-- Returns an empty list.
--
-- Invariant: no bucket holds more than if the request had never been; what has returned by itself is left alone.

local now, at = present(ARGV[1]), tonumber(ARGV[2])
for_each_limit(function(algorithm, key, arg) algorithm.give_back(key, arg, at, now) end)
return {}
