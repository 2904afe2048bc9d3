-- One page of all keys under the prefix: what each is, and how long it lives.
-- ARGV: 2 cursor, 3 page size (of all keys of the server, ours or not), 4 pattern of ours
-- Result: {next cursor ('0' = end), {key without prefix, type, ttl ms (-1 = for ever)}...}
-- Guarantee: reads only.
--#include base
local page = call('SCAN', ARGV[2], 'MATCH', ARGV[4], 'COUNT', ARGV[3])
local result = { page[1] }
for _, key in ipairs(page[2]) do
  local ttl = call('PTTL', key)
  -- -2: it ended between the two.
  if ttl > -2 then table.insert(result, { string.sub(key, #P + 1), call('TYPE', key).ok, ttl }) end
end
return result
