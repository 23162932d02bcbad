-- receipts: decisions that are made once for an id. A granted decision leaves a receipt: a string with all that is needed to
-- repeat its reply and to give its permits back. A refused decision leaves none.
--
-- KEYS  take_once: the keys of the buckets as for `admit`, then the receipt; return_once: the keys in the receipt, then the
--       receipt; bind_id: a string with the hash tag of the receipt
-- ARGV  the operation, then: take_once: the arguments of `admit` (empty: random bytes, now), the start of the receipt, for each
--       limit of the request `1` for a shadow or `0`, and the time to live of the receipt (ms); return_once: the
--       arguments of `give_back` (empty: now), and the receipt; bind_id: a hash tag, or an empty string to read it, and the
--       time to live (ms)
-- Returns take_once: the reply of `admit`, or a list with the receipt if there is one; return_once: 1, or 0 if the receipt
--       is another; bind_id: the hash tag that the id is bound to, or an empty string
--
-- Invariant: a decision is granted at most once for a receipt, and its permits are given back at most once. The receipt is
-- written in the call that charges the buckets. The first byte of a receipt is `T`, and `R` after its permits were given back.

-- Returns whether a reply of `admit` about one request grants it. `shadows` has a digit for each of its limits.
local function is_granted(reply, shadows)
  local at = 13
  for i = 1, #shadows do
    local outcome = byte(reply, at)
    if outcome == 0 and string.sub(shadows, i, i) == '0' then return false end
    at = at + (outcome == 1 and 11 or 19)
  end
  return true
end

function operations.take_once(arguments)
  local key, shadows = KEYS[#KEYS], arguments[7]
  local receipt = call('GET', key)
  if receipt then return { receipt } end
  local reply = admit(arguments)
  -- Without decisions, a limit needs other calendar boundaries, unless there are no limits.
  if type(reply) == 'string' and (#reply > 8 or shadows == '') and is_granted(reply, shadows) then
    call('SET', key, arguments[6] .. reply, 'PX', arguments[8])
  end
  return reply
end

function operations.return_once(arguments)
  local key = KEYS[#KEYS]
  if call('GET', key) ~= arguments[5] then return 0 end
  call('SETRANGE', key, 0, 'R')
  operations.give_back(arguments)
  return 1
end

function operations.bind_id(arguments)
  local bound = call('GET', KEYS[1])
  if arguments[2] ~= '' and (not bound or bound == arguments[2]) then
    call('SET', KEYS[1], arguments[2], 'PX', arguments[3])
    return arguments[2]
  end
  return bound or ''
end
