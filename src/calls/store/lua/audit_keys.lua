-- Reads one page of all keys under the prefix: name, type and TTL of each.
-- ARGV: 2 cursor, 3 page size (of all keys of the server), 4 pattern of our keys
-- Result: {next cursor ('0' = end), {key without prefix, type, TTL ms (-1 = none)}...}
-- Guarantee: reads only.
--#include base
local page = call('SCAN', ARGV[2], 'MATCH', ARGV[4], 'COUNT', ARGV[3])
local result = { page[1] }
for _, key in ipairs(page[2]) do
  local ttl = call('PTTL', key)
  -- -2: the key expired since SCAN.
  if ttl > -2 then table.insert(result, { string.sub(key, #P + 1), call('TYPE', key).ok, ttl }) end
end
return result
