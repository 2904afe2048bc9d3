-- Counts of every pool, read at one moment.
-- Result: {now, tier version, leader epoch, pods held by the removal brake, {pool, kind, assigned, can take a call, live calls}...}
--#include base
--#include pools
--#include settings
local result = { now, tier_version(), call('GET', P .. 'leader:epoch') or '',
  call('SCARD', P .. 'removals:held') }
local flat = call('HGETALL', P .. 'pools')
for i = 1, #flat, 2 do
  local pool, value = flat[i], flat[i + 1]
  local kind, max = parse_kind(value)
  local free = 0
  if kind == 'exclusive' then free = call('SCARD', available_key(pool)) end
  if kind == 'shared' then free = call('ZCOUNT', available_key(pool), '-inf', '(' .. max) end
  table.insert(result, { pool, value, call('SCARD', P .. pool .. ':assigned'), free,
    call('ZCARD', pool_calls_key(pool)) })
end
return result
