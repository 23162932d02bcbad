-- counters: permits that are counted together, known by the moment at which their segment or window ends. What
-- sliding_window and fixed_window share; the translation of src/limit/counters.rs, where it is told why.
--
-- A bucket is a hash: field = when the counter ends (ms), value = its permits, all granted before that. Algorithms add
--   key, now, rate, permits  what they were asked
--   horizon                  counters that end by then are no longer in use
--   forget                   counters that end by then are forgotten with the next write
--   present                  when the counter of the present ends
--
-- Invariant: a counter that ends after the present one lies ahead (the clock went back, or segments were longer once);
-- every write moves its permits into the present one.
--
-- KEYS  one hash a bucket, which the algorithms name
-- ARGV  nothing of its own

local counters = {}

local function text(number)
  return string.format('%.0f', number)
end

-- All counters of a key: a table from when they end to their permits.
function counters.read(key)
  local fields, permits = redis.call('HGETALL', key), {}
  for i = 1, #fields, 2 do permits[tonumber(fields[i])] = tonumber(fields[i + 1]) end
  return permits
end

-- Sets the permits in use, when the oldest of them end and the newest of all, and whether there are enough left.
function counters.judge(bucket)
  bucket.used, bucket.newest = 0, 0
  for ends, permits in pairs(bucket.counters) do
    if ends > bucket.newest then bucket.newest = ends end
    if ends > bucket.horizon then
      bucket.used = bucket.used + permits
      if not bucket.oldest or ends < bucket.oldest then bucket.oldest = ends end
    end
  end
  bucket.remaining = math.max(0, bucket.rate - bucket.used)
  bucket.granted = bucket.permits == 0 or bucket.permits <= bucket.remaining
end

-- When the counters in use end, oldest first. Only who has to wait needs their order.
function counters.in_order(bucket)
  local order = {}
  for ends in pairs(bucket.counters) do
    if ends > bucket.horizon then order[#order + 1] = ends end
  end
  table.sort(order)
  return order
end

-- Counts permits in the present counter, with all that lie ahead. Written first and deleted second, so that the key
-- never goes away in between, and its time to live with it.
function counters.add(bucket, permits)
  local gone = {}
  for ends, counted in pairs(bucket.counters) do
    if ends >= bucket.present then permits = permits + counted end
    if ends > bucket.present or ends <= bucket.forget then gone[#gone + 1] = text(ends) end
  end
  redis.call('HSET', bucket.key, text(bucket.present), text(permits))
  if #gone > 0 then redis.call('HDEL', bucket.key, unpack(gone)) end
end

-- Takes what judge() granted, and keeps the key for so many milliseconds.
function counters.charge(bucket, keep_alive)
  counters.add(bucket, bucket.permits)
  redis.call('PEXPIRE', bucket.key, text(keep_alive))
  bucket.remaining = math.max(0, bucket.rate - bucket.used - bucket.permits)
  bucket.oldest = math.min(bucket.oldest or bucket.present, bucket.present)
end

-- After a refusal: nothing is written, unless counters lie ahead.
function counters.settle(bucket)
  if bucket.newest > bucket.present then counters.add(bucket, 0) end
end

-- Takes permits out of the counter that ends then. One that is not there, or holds fewer, has returned them or passed
-- them on.
function counters.remove(key, permits, ends)
  local field = text(ends)
  local left = (tonumber(redis.call('HGET', key, field)) or -1) - permits
  if left > 0 then redis.call('HSET', key, field, text(left)) end
  if left == 0 then redis.call('HDEL', key, field) end
end
