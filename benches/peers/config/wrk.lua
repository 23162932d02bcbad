-- Prints the results of wrk as one line of JSON. With `clients=N` after the URL, the requests name N clients in turn.

local requests, next_one = {}, 0

function init(arguments)
  local clients = tonumber((arguments[1] or ''):match('^clients=(%d+)$') or 0)
  for number = 1, clients do
    requests[number] = wrk.format('GET', nil, { ['X-Client'] = ('client-%06d'):format(number) })
  end
  if clients == 0 then return end -- wrk then sends the same request each time
  request = function()
    next_one = next_one % #requests + 1
    return requests[next_one]
  end
end

function done(summary)
  local errors = summary.errors
  local line = '{"requests":%d,"microseconds":%d,"not_ok":%d,"connect":%d,"read":%d,"write":%d,"timeout":%d}\n'
  io.write(line:format(summary.requests, summary.duration, errors.status, errors.connect, errors.read, errors.write,
    errors.timeout))
end
