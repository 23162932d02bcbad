-- waiting: the order in which the requests of all gateways wait for a bucket. Each gateway writes a ticket for the
-- first requests of its queue. Permits that earlier requests of tickets need are not granted to other requests.
--
-- KEYS  of a bucket in this order: the keys of the bucket, then one string: tickets, each packed little-endian: its
--       queue (8 bytes), since when its first request waited (6 bytes, ms), the permits of each request (4), when the
--       ticket was written (6, ms), how long it is valid (4, ms), the number of its requests (1), and for each request
--       how much later than the first it began to wait (4, ms)
-- ARGV  used only through admit.lua
-- Returns nothing; admit.lua uses it.
--
-- Invariant: tickets only refuse requests, and never grant. A queue has one ticket. A ticket whose gateway does not ask
-- again ends GRACE milliseconds after the permits of its first request have returned, or when the clock goes back.

local waiting = {}

local TICKET, TICKET_BYTES, AGE, AGE_BYTES, GRACE, MAX_TICKETS = '<c8I6I4I6I4B', 29, '<I4', 4, 250, 256

-- Reads the valid tickets of a bucket.
function waiting.open(key, now)
  local stored, tickets = try('GET', key), { key = key, now = now, changed = false }
  if type(stored) ~= 'string' then return tickets end
  local at = 1
  while at + TICKET_BYTES - 1 <= #stored do
    local queue, since, permits, written, valid, count, ages = from_bytes(TICKET, stored, at)
    at = ages + AGE_BYTES * count
    if written <= now and now < written + valid then
      tickets[#tickets + 1] = {
        queue = queue, since = since, permits = permits, written = written, valid = valid,
        ages = string.sub(stored, ages, at - 1),
      }
    end
  end
  return tickets
end

-- Returns the number of requests of a ticket that come before a request.
local function requests_before(ticket, queue, since)
  local count = math.floor(#ticket.ages / AGE_BYTES)
  if since == math.huge then return count end
  for i = 1, count do
    local began = ticket.since + from_bytes(AGE, ticket.ages, AGE_BYTES * (i - 1) + 1)
    if began > since or began == since and ticket.queue > queue then return i - 1 end
  end
  return count
end

-- Returns the permits that the requests of tickets before a request need, and the time when the first of these tickets
-- ends.
function waiting.before(tickets, queue, since)
  local permits, ends = 0, math.huge
  for _, ticket in ipairs(tickets) do
    local requests = ticket.queue == queue and 0 or requests_before(ticket, queue, since)
    if requests > 0 then
      permits, ends = permits + requests * ticket.permits, math.min(ends, ticket.written + ticket.valid)
    end
  end
  return permits, ends
end

-- Returns the wait of a request behind tickets: until the permits of all have returned, but at most until a ticket
-- ends. If they are more than the capacity, the bucket is emptied several times.
function waiting.wait(algorithm, bucket, permits, before, ends)
  local limiter = bucket.limiter
  local capacity = limiter.burst or limiter.rate
  if permits > capacity then return -1 end
  local times = math.floor((before + permits - 1) / capacity)
  local _, wait = algorithm.check(bucket, before + permits - times * capacity)
  local filled_in = limiter.burst and math.ceil(capacity * limiter.interval / limiter.rate) or limiter.interval
    or limiter.returns_at - limiter.expired
  return math.max(1, math.min(wait + times * filled_in, ends - limiter.now))
end

-- Removes the ticket of a queue, if it has one.
function waiting.remove(tickets, queue)
  for i, ticket in ipairs(tickets) do
    if ticket.queue == queue then
      table.remove(tickets, i)
      tickets.changed = true
      return
    end
  end
end

-- Writes the ticket of a queue whose requests waited since these ages after the first.
function waiting.put(tickets, queue, since, permits, ages, wait)
  waiting.remove(tickets, queue)
  if #tickets >= MAX_TICKETS or wait < 0 then return end
  local valid = math.min(wait + GRACE, 4294967295)
  tickets[#tickets + 1] = {
    queue = queue, since = math.max(0, since), permits = permits, written = tickets.now, valid = valid, ages = ages,
  }
  tickets.changed = true
end

-- Removes the first request from the ticket of a queue. The others are first in the queue for the grace.
function waiting.advance(tickets, queue, since, permits, ages)
  local others = string.sub(ages, AGE_BYTES + 1)
  if others == '' or permits == 0 then return waiting.remove(tickets, queue) end
  waiting.put(tickets, queue, since, permits, others, 0)
end

-- Stores the tickets if they have changed. If Redis has no memory for them, requests are granted out of order.
function waiting.save(tickets)
  if not tickets.changed then return end
  local packed, keep = {}, 1
  for i, ticket in ipairs(tickets) do
    local count = math.floor(#ticket.ages / AGE_BYTES)
    packed[i] = to_bytes(TICKET, ticket.queue, ticket.since, ticket.permits, ticket.written, ticket.valid, count) .. ticket.ages
    keep = math.max(keep, ticket.written + ticket.valid - tickets.now + 10000)
  end
  -- An empty string for a millisecond, since gateways may not have the permission for DEL.
  try('SET', tickets.key, table.concat(packed), 'PX', text(keep))
end
