-- Reads one page of a pool's pods.
-- ARGV: 2 pool, 3 cursor, 4 page size (a hint: a small pool comes whole)
-- Result: {next cursor ('0' = end), row of `describe`...}; an unreadable pod has only its name, pool and block
--#include base describe unreadable
local page = call('SSCAN', Key.assigned(ARGV[2]), ARGV[3], 'COUNT', tonumber(ARGV[4]))
local result = { page[1] }
for _, pod in ipairs(page[2]) do
  local wrong = wrong_key(pod)
  table.insert(result, wrong and { pod, ARGV[2], 'unreadable', '', '', '', '', {} } or describe(pod))
end
return result
