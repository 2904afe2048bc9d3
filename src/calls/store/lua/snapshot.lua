-- Counts the pods and calls of every pool at one moment.
-- Result: {now, tier version, leader epoch, pods held by the removal brake, {pods that are set back} (at most 100), calls
--         that wait, {pool, kind, assigned, can take a call, live calls, pods that have no call and cannot get one, the key
--         `assigned` if it has a wrong type ('' = readable)}...}
-- A key of a wrong type counts as 0, so that one pool does not hide the others; for `pools` it is an error.
--#include base pools settings
-- Finding a few of 2,000 pods takes the store 0.3 to 0.9 ms: too much at every scrape for larger pools.
local MAX_SEARCHED = 2000

local function count(...)
  return read_or_nil(...) or 0
end

-- Pods without a call that are not in `available`: blocked, or lost from it. An exclusive pod outside `available` has one
-- call or none, so counting is enough. A shared pod may have many, so each is searched; in a larger pool the count is a
-- lower bound.
local function stranded(pool, kind, assigned, outside, live)
  if kind ~= 'shared' or live == 0 or outside <= 0 or assigned > MAX_SEARCHED then
    return math.max(0, outside - live)
  end
  local found = 0
  for _, pod in ipairs(read_or_nil('ZDIFF', 2, Key.assigned(pool), available_key(pool)) or {}) do
    if count('ZCARD', Key.pod_calls(pod)) == 0 then found = found + 1 end
  end
  return found
end

local result = { now, tier_version(), text_at(Key.leader_epoch) or '',
  count('SCARD', Key.removals_held), read_or_nil('ZRANGE', Key.flapping, 0, 99) or {}, count('ZCARD', Key.waiting_due) }
local flat = call('HGETALL', Key.pools)
for i = 1, #flat, 2 do
  local pool, value = flat[i], flat[i + 1]
  local kind, max = parse_kind(value)
  local assigned_key = Key.assigned(pool)
  local known, live = read_or_nil('SCARD', assigned_key), count('ZCARD', Key.pool_calls(pool))
  local assigned = known or 0
  local inside, free = 0, 0
  if kind == 'exclusive' then
    inside = count('SCARD', available_key(pool))
    free = inside
  elseif kind == 'shared' then
    inside = count('ZCARD', available_key(pool))
    free = count('ZCOUNT', available_key(pool), '-inf', '(' .. max)
  end
  table.insert(result, { pool, value, assigned, free, live,
    stranded(pool, kind, assigned, assigned - inside, live), known and '' or assigned_key })
end
return result
