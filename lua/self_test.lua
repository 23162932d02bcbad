-- self_test: runs each command that the scripts use, so that a gateway can report what Redis refuses. Adds an
-- operation.
--
-- KEYS  a string, a sorted set and a hash, which only this operation uses
-- ARGV  `self_test`
-- Returns for each command that failed its name and its error
--
-- Invariant: no key stays, at most for a second if UNLINK fails.

function operations.self_test()
  local failures, string_key, set_key, hash_key = {}, KEYS[1], KEYS[2], KEYS[3]
  local function test(command, ...)
    local reply = try(command, ...)
    local failure = type(reply) == 'table' and reply.err
    if failure then
      failures[#failures + 1] = command
      failures[#failures + 1] = failure
    end
    return not failure
  end
  test('TIME')
  test('SET', string_key, '1', 'PX', '1000')
  test('GET', string_key)
  test('SETRANGE', string_key, '0', '1')
  test('GETRANGE', string_key, '0', '0')
  test('STRLEN', string_key)
  test('PTTL', string_key)
  local expires = test('PEXPIRE', string_key, '1000')
  test('ZADD', set_key, 'XX', '1', 'member')
  for _, command in ipairs({ 'ZREMRANGEBYSCORE', 'ZREMRANGEBYRANK', 'ZRANGEBYSCORE', 'ZRANGE', 'ZREVRANGE' }) do
    test(command, set_key, '0', '0')
  end
  test('ZREM', set_key, 'member')
  test('ZCARD', set_key)
  if expires and test('HSET', hash_key, 'field', '1') then try('PEXPIRE', hash_key, '1000') end
  test('HGET', hash_key, 'field')
  test('HGETALL', hash_key)
  test('HLEN', hash_key)
  test('HDEL', hash_key, 'field')
  test('SCAN', '0', 'COUNT', '1')
  test('UNLINK', string_key, set_key, hash_key)
  return failures
end
