-- The next value of a counter that never goes backwards, as digits, for fences and epochs: after a flush it starts at the
-- clock, and after a failover that lost writes the clock is ahead of it. A key of a wrong type is overwritten.
local function next_count(key)
  local text = digits(now_us)
  local stored = redis.pcall('SET', key, text, 'GET')
  if type(stored) == 'table' then stored = not call('SET', key, text) end
  local before = tonumber(stored or 0)
  if before and before >= now_us then
    text = digits(before + 1)
    call('SET', key, text)
  end
  return text
end
