-- fleet: the texts in which gateways describe themselves.
--
-- KEYS  a hash of the texts by gateway; a hash of the hashes of their rule files; a sorted set of the gateways by the time
--       of their last announcement (ms)
-- ARGV  `announce`, how long an announcement is valid (ms), gateway, text, hash of the rule file (empty if it has none),
--       the maximal number of gateways
--       `read`, how long an announcement is valid (ms)
-- Returns announce: the number of different hashes; read: for each gateway its id, the age of its announcement (ms) and
--       its text
--
-- Invariant: the two hashes have only gateways of the sorted set. An announcement removes those that are not valid any
-- more. A gateway beyond the maximum is not stored.

local texts, hashes, seen = KEYS[1], KEYS[2], KEYS[3]
local time, lasts = redis.call('TIME'), tonumber(ARGV[2])
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local operations = {}

local function text_of(number) return string.format('%.0f', number) end

local function remove_old()
  for _, gateway in ipairs(redis.call('ZRANGEBYSCORE', seen, '-inf', text_of(now - lasts))) do
    redis.call('HDEL', texts, gateway)
    redis.call('HDEL', hashes, gateway)
  end
  redis.call('ZREMRANGEBYSCORE', seen, '-inf', text_of(now - lasts))
  -- The clock went back: announcements from the future were made just now.
  for _, ahead in ipairs(redis.call('ZRANGEBYSCORE', seen, '(' .. text_of(now), '+inf')) do
    redis.call('ZADD', seen, text_of(now), ahead)
  end
end

local function count_hashes()
  local count, known, all = 0, {}, redis.call('HGETALL', hashes)
  for index = 2, #all, 2 do
    if not known[all[index]] then count = count + 1 end
    known[all[index]] = true
  end
  return count
end

function operations.announce(gateway, text, hash, max)
  remove_old()
  if redis.call('HGET', texts, gateway) or redis.call('ZCARD', seen) < tonumber(max) then
    redis.call('HSET', texts, gateway, text)
    redis.call('HDEL', hashes, gateway)
    if hash ~= '' then redis.call('HSET', hashes, gateway, hash) end
    redis.call('ZADD', seen, text_of(now), gateway)
  end
  for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, text_of(lasts)) end
  return count_hashes()
end

function operations.read()
  local found, all = {}, redis.call('ZRANGEBYSCORE', seen, '(' .. text_of(now - lasts), '+inf', 'WITHSCORES')
  for index = 1, #all, 2 do
    local text = redis.call('HGET', texts, all[index])
    if text then found[#found + 1] = { all[index], math.max(0, now - tonumber(all[index + 1])), text } end
  end
  return found
end

return operations[ARGV[1]](unpack(ARGV, 3))
