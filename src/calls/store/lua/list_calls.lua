-- Reads one page of a pool's live calls.
-- ARGV: 2 pool, 3 cursor, 4 page size (a hint: a small pool comes whole)
-- Result: {next cursor ('0' = end), {sid, deadline, field, value...}...}
--#include base
-- An index of a wrong type has no calls until the sweep rebuilds it.
local page = read_or_nil('ZSCAN', Key.pool_calls(ARGV[2]), ARGV[3], 'COUNT', tonumber(ARGV[4])) or { '0', {} }
local result = { page[1] }
for i = 1, #page[2], 2 do
  local row = read_or_nil('HGETALL', Key.call(page[2][i])) or {}
  if #row > 0 then
    table.insert(row, 1, page[2][i])
    table.insert(row, 2, page[2][i + 1])
    table.insert(result, row)
  end
end
return result
