-- The next value of a counter that never goes backwards: not after a flush (it starts at the clock), and
-- not after a failover that lost the last writes (the clock has moved on). Fences and epochs use it.
-- Returns its digits. A key of another type holds no number, and is written over.
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
