-- Prints the results of wrk as one line of JSON. Arguments after the URL, 0 for none: `clients=N`: the requests name N
-- clients in turn; `upload=N`: they have bodies of N bytes; `close=1`: each has its own connection; `post=TEXT`: they have
-- this body.

local requests, next_one = {}, 0

function init(arguments)
  local function text_of(name)
    for _, argument in ipairs(arguments) do
      local value = argument:match('^' .. name .. '=(.+)$')
      if value then return value end
    end
  end
  local function number_of(name) return tonumber(text_of(name) or 0) end
  if number_of('close') > 0 then wrk.headers['Connection'] = 'close' end
  if number_of('upload') > 0 then wrk.method, wrk.body = 'POST', ('x'):rep(number_of('upload')) end
  if text_of('post') then wrk.method, wrk.body = 'POST', text_of('post') end
  local clients = number_of('clients')
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
