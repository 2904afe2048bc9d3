-- The next value of a counter that never goes backwards: not after a flush (it starts at the clock), and
-- not after a failover that lost the last writes (the clock has moved on). Fences and epochs use it.
-- Returns its digits.
local function next_count(key)
  local text = digits(now_us)
  local before = tonumber(call('SET', key, text, 'GET') or 0)
  if before and before >= now_us then
    text = digits(before + 1)
    call('SET', key, text)
  end
  return text
end
