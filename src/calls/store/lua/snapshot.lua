-- Counts of every pool, read at one moment.
-- Result: {now, tier version, leader epoch, pods held by the removal brake,
--         {pool, kind, assigned, can take a call, live calls, pods that have no call and cannot get one}...}
--#include base
--#include pools
--#include settings
-- To find a few of 2,000 pods takes the store 0.3 to 0.9 ms; larger pools are not worth that at every scrape.
local most_searched = 2000

-- Those that are not in `available` and have no call: blocked, or lost from it. Of `outside` an exclusive pod has one
-- call or none, so counting is enough. A shared one may have many: those few are looked at, or the calls of the other
-- pods would hide them. In a larger pool it is at least so many.
local function stranded(pool, kind, assigned, outside, live)
  if kind ~= 'shared' or live == 0 or outside <= 0 or assigned > most_searched then
    return math.max(0, outside - live)
  end
  local count = 0
  for _, pod in ipairs(call('ZDIFF', 2, P .. pool .. ':assigned', available_key(pool))) do
    if (read_or_nil('ZCARD', pod_calls_key(pod)) or 0) == 0 then count = count + 1 end
  end
  return count
end

local result = { now, tier_version(), call('GET', P .. 'leader:epoch') or '',
  call('SCARD', P .. 'removals:held') }
local flat = call('HGETALL', P .. 'pools')
for i = 1, #flat, 2 do
  local pool, value = flat[i], flat[i + 1]
  local kind, max = parse_kind(value)
  local assigned, live = call('SCARD', P .. pool .. ':assigned'), call('ZCARD', pool_calls_key(pool))
  local inside, free = 0, 0
  if kind == 'exclusive' then
    inside = call('SCARD', available_key(pool))
    free = inside
  elseif kind == 'shared' then
    inside = call('ZCARD', available_key(pool))
    free = call('ZCOUNT', available_key(pool), '-inf', '(' .. max)
  end
  table.insert(result, { pool, value, assigned, free, live,
    stranded(pool, kind, assigned, assigned - inside, live) })
end
return result
