-- The next value of a counter that never goes backwards: not after a flush (it starts at the clock), and
-- not after a failover that lost the last writes (the clock has moved on). Fences and epochs use it.
local function next_count(key)
  local value = math.max(tonumber(call('GET', key) or 0) + 1, now_us)
  call('SET', key, digits(value))
  return value
end
