-- The next value of a counter that never goes backwards, as digits, for fences and epochs: after a flush it starts at the
-- clock, and after a failover that lost writes the clock is ahead of it. A key of a wrong type is overwritten,
-- and so is text that is not a number below 9e15: larger ones lose their last digit, and `inf` never grows.
local function next_count(key)
  local text = us
  local stored = redis.pcall('SET', key, text, 'GET')
  if type(stored) == 'table' then stored = not call('SET', key, text) end
  local before = tonumber(stored)
  if before and before >= now_us and before < 9e15 then
    text = string.format('%.0f', before + 1)
    call('SET', key, text)
  end
  return text
end
