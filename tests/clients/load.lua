-- For wrk: a pause before each request, in milliseconds, so that there is processor time left for what is tested.
function delay()
  return math.random(2, 6)
end
