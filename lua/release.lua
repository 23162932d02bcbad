-- release: puts permits back before they return by themselves.
--
-- KEYS  hash, value, value of the instance, permits, permits of the instance
-- ARGV  now (ms; empty: the server's TIME), permits
-- Returns how many were put back: fewer if fewer are in use, or if the 512 newest entries hold fewer; or the error of a
-- limiter that has no rate.
--
-- Invariant: a permit is put back once. It leaves the log, newest grants first, so that it does not return a second
-- time when its interval is over; the counter follows the log.

local now, left = present(ARGV[1]), tonumber(ARGV[2])
local bucket = foreign.read(1, 'library', '', now)
if bucket.failure then return redis.error_reply(bucket.failure) end

local after = '(' .. text(now - bucket.interval)
local newest = redis.call('ZREVRANGEBYSCORE', bucket.log, '+inf', after, 'WITHSCORES', 'LIMIT', 0, 512)
local put_back = 0
for i = 1, #newest, 2 do
  if put_back == left then break end
  local entry, permits = newest[i], permits_of(newest[i])
  local taken = math.min(permits, left - put_back)
  -- Added before the other goes: an empty log would lose its time to live.
  if permits > taken then redis.call('ZADD', bucket.log, newest[i + 1], with_permits(entry, permits - taken)) end
  redis.call('ZREM', bucket.log, entry)
  put_back = put_back + taken
end
bucket.stored = bucket.stored - put_back
foreign.heal(bucket)
if put_back > 0 then foreign.keep_alive(bucket) end
return put_back
