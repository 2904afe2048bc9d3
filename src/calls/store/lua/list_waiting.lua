-- Reads one page of the waiting calls.
-- ARGV: 2 cursor, 3 page size (a hint)
-- Result: {next cursor ('0' = end), {sid, place in its queue, 1 = its merchant is at its limit, field, value...}...}
--#include base queues
local page = read_or_nil('ZSCAN', Key.waiting_due, ARGV[2], 'COUNT', tonumber(ARGV[3])) or { '0', {} }
local result = { page[1] }
for i = 1, #page[2], 2 do
  local sid = page[2][i]
  local row = read_or_nil('HGETALL', Key.call(sid)) or {}
  local queue = (read_or_nil('HMGET', Key.call(sid), 'queue') or {})[1]
  local rank = queue and read_or_nil('ZRANK', Key.waiting_calls(queue), sid)
  if rank then
    for k, value in ipairs({ sid, rank + 1, is_at_limit(queue, limit_of(queue)) and 1 or 0 }) do table.insert(row, k, value) end
    table.insert(result, row)
  end
end
return result
