-- counters: permits that are counted together, known by the moment at which their segment or window ends. What
-- sliding_window and fixed_window share; the translation of src/limit/counters.rs, where it is told why.
--
-- A bucket is a hash: field = when the counter ends (ms), value = its permits, all granted before that. Algorithms add
--   key, now, rate           what they were asked
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

-- All counters of a key: a table from when they end to their permits.
function counters.read(key)
  local fields, permits = redis.call('HGETALL', key), {}
  for i = 1, #fields, 2 do permits[tonumber(fields[i])] = tonumber(fields[i + 1]) end
  return permits
end

-- Sets the permits in use, and when the oldest of them end and the newest of all.
function counters.take_stock(bucket)
  bucket.used, bucket.newest = 0, 0
  for ends, permits in pairs(bucket.counters) do
    if ends > bucket.newest then bucket.newest = ends end
    if ends > bucket.horizon then
      bucket.used = bucket.used + permits
      if not bucket.oldest or ends < bucket.oldest then bucket.oldest = ends end
    end
  end
end

-- How many are left.
function counters.remaining(bucket)
  return math.max(0, bucket.rate - bucket.used)
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

-- Counts permits in the present counter, with all that lie ahead; what is forgotten goes with the next write.
function counters.add(bucket, permits)
  bucket.gone = bucket.gone or {}
  for ends, counted in pairs(bucket.counters) do
    if ends >= bucket.present then permits = permits + counted end
    if ends > bucket.present or ends <= bucket.forget then
      bucket.gone[#bucket.gone + 1] = ends
      bucket.counters[ends] = nil
    end
  end
  bucket.counters[bucket.present] = permits
end

-- Takes what is left.
function counters.charge(bucket, permits)
  counters.add(bucket, permits)
  bucket.used, bucket.added = bucket.used + permits, true
  bucket.oldest = math.min(bucket.oldest or bucket.present, bucket.present)
end

-- Written first and deleted second, so that the key never goes away in between, and its time to live with it.
function counters.write(bucket)
  redis.call('HSET', bucket.key, bucket.present, bucket.counters[bucket.present])
  if #bucket.gone > 0 then redis.call('HDEL', bucket.key, unpack(bucket.gone)) end
end

-- Writes what was charged in this call, and keeps the key for so many milliseconds.
function counters.save(bucket, keep_alive)
  counters.write(bucket)
  redis.call('PEXPIRE', bucket.key, keep_alive)
end

-- After a refusal: nothing is written, unless counters lie ahead.
function counters.settle(bucket)
  if bucket.newest <= bucket.present then return end
  counters.add(bucket, 0)
  counters.write(bucket)
end

-- Takes permits out of the counter that ends then. One that is not there, or holds fewer, has returned them or passed
-- them on.
function counters.remove(key, permits, ends)
  local left = (tonumber(redis.call('HGET', key, ends)) or -1) - permits
  if left > 0 then redis.call('HSET', key, ends, left) end
  if left == 0 then redis.call('HDEL', key, ends) end
end
