-- A limit in Redis for nginx, in the access phase: runs Redisson's acquire script for one permit of an OVERALL limiter,
-- on a keep-alive connection. A minimal Redis client: it sends EVALSHA and reads one reply (RESP2).

local limit = {}

local NAME = 'overall'
local KEPT_MS, KEPT = 3600000, 128

local host, port, script
local call, load -- the constant parts of EVALSHA and EVAL
local count = 0

local function bulk(text)
  return '$' .. #text .. '\r\n' .. text .. '\r\n'
end

-- Reads the script and builds the constant parts of all calls.
function limit.configure(path, redis_host, redis_port)
  host, port = redis_host, redis_port
  local file = assert(io.open(path))
  script = file:read('*a')
  file:close()
  local tag, client = '{' .. NAME .. '}', ':' .. ('0'):rep(32)
  local keys = bulk('5') .. bulk(NAME) .. bulk(tag .. ':value') .. bulk(tag .. ':value' .. client)
    .. bulk(tag .. ':permits') .. bulk(tag .. ':permits' .. client) .. bulk('1')
  local sha = ngx.sha1_bin(script):gsub('.', function(byte) return ('%02x'):format(byte:byte()) end)
  call = '*11\r\n' .. bulk('EVALSHA') .. bulk(sha) .. keys
  load = '*11\r\n' .. bulk('EVAL') .. bulk(script) .. keys
end

-- Returns the integer of the reply, or nil for a null reply, and an error.
local function reply(socket)
  local line, failure = socket:receive('*l')
  if not line then return nil, failure end
  local kind = line:byte()
  if kind == 58 then return tonumber(line:sub(2)) end -- :
  if kind == 36 then return nil end -- $-1
  return nil, line
end

-- The gateway's clock is used, as Redisson uses the client's. The 16 bytes only have to be unique.
local function ask(socket, command)
  count = count + 1
  local now = bulk(('%.0f'):format(ngx.now() * 1000))
  local sent, failure = socket:send({ command, now, bulk(('%016.0f'):format(count)) })
  if not sent then return nil, failure end
  return reply(socket)
end

local function acquire()
  local socket = ngx.socket.tcp()
  local connected, failure = socket:connect(host, port, { pool_size = KEPT })
  if not connected then return nil, failure end
  local wait
  wait, failure = ask(socket, call)
  if failure and failure:find('NOSCRIPT', 1, true) then wait, failure = ask(socket, load) end
  if not failure then socket:setkeepalive(KEPT_MS, KEPT) end
  return wait, failure
end

-- Admits the request, or responds to it.
function limit.check()
  local wait, failure = acquire()
  if failure then
    ngx.log(ngx.CRIT, 'redis: ', failure)
    return ngx.exit(503)
  end
  if wait then
    ngx.header['Retry-After'] = math.ceil(wait / 1000)
    return ngx.exit(429)
  end
end

return limit
