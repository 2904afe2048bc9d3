-- One page of a pool's pods.
-- ARGV: 2 pool, 3 cursor, 4 page size (a hint: a small pool comes whole)
-- Result: {next cursor ('0' = end), describe's row...}
--#include base
--#include describe
local page = call('SSCAN', P .. ARGV[2] .. ':assigned', ARGV[3], 'COUNT', tonumber(ARGV[4]))
local result = { page[1] }
for _, pod in ipairs(page[2]) do table.insert(result, describe(pod)) end
return result
