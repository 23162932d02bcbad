-- operate: runs the operation named by the first argument: decide (admit.lua), undo (give_back.lua), announce or pay
-- (membership.lua), or an operation of the library on one shared limiter (see the end of redisson.lua).
--
-- KEYS  admit, give_back: those of all buckets; else those of one bucket of redisson.lua
-- ARGV  the operation; admit, give_back: as these take them; else now (ms; empty: the server's TIME), and the operation's own
-- Returns the result of the operation, or the error of a limiter that has no rate.
--
-- Invariant: that of the operation.

local operations = { admit = admit, give_back = give_back, announce = announce, owe = owe }

for _, name in ipairs({ 'release', 'set_rate', 'expire' }) do
  operations[name] = function(arguments)
    return algorithms.redisson[name](present(arguments[2]), unpack(arguments, 3))
  end
end
