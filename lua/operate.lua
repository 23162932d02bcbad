-- operate: an operation of the library on one limiter (see the end of redisson.lua).
--
-- KEYS  those of a bucket of redisson.lua
-- ARGV  release, set_rate or expire; now (ms; empty: the server's TIME); the operation's own
-- Returns what the operation says, or the error of a limiter that has no rate.
--
-- Invariant: that of redisson.lua.

return redisson[ARGV[1]](present(ARGV[2]), unpack(ARGV, 3))
