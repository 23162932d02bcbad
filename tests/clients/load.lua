-- For wrk: a pause before each request, in milliseconds, so that the load leaves CPU time to the gateway.
function delay()
  return math.random(2, 6)
end
