-- expire: lets a limiter vanish after a time, or never.
--
-- KEYS  hash, value, value of the instance, permits, permits of the instance
-- ARGV  milliseconds from now; empty: never
-- Returns 1 if the limiter is there (and, for never, was going to vanish), else 0.
--
-- Invariant: permits in use outlive the limiter until they have returned, so that one made again under its name does
-- not grant them twice.

local millis = ARGV[1]
if millis == '' then
  local kept = redis.call('PERSIST', KEYS[1])
  for i = 2, 5 do redis.call('PERSIST', KEYS[i]) end
  return kept
end
if redis.call('PEXPIRE', KEYS[1], millis) == 0 then return 0 end
local interval = tonumber(redis.call('HGET', KEYS[1], 'interval')) or 0
for i = 2, 5 do redis.call('PEXPIRE', KEYS[i], text(math.max(tonumber(millis), interval))) end
return 1
