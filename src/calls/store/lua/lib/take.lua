--#include base pods
-- Takes a pod of the pool. Returns it, its load, and for a shared pool the key of its scores. `available` is derived, so each
-- candidate is checked against the truth; one that fails is removed until the sweep. After 100 failures the set is damaged:
-- the next pool is tried.
local function take(pool, value)
  local kind, max = parse_kind(value)
  local key = available_key(pool)
  for _ = 1, kind and 100 or 0 do
    local pod
    if kind == 'shared' then
      pod = (read_or_nil('ZRANGEBYSCORE', key, '-inf', '(' .. max, 'LIMIT', '0', '1') or {})[1]
    else
      pod = read_or_nil('SPOP', key)
    end
    if not pod then return nil end
    local home, block = read_pod(pod)
    local load = read_or_nil('ZCARD', Key.pod_calls(pod))
    block = block or not load
    if home == pool and not block and load < max then return pod, load, kind == 'shared' and key end
    if kind == 'shared' and home == pool then place(pod, pool, kind, load, block) end
    if kind == 'shared' and home ~= pool then call('ZREM', key, pod) end
  end
end

-- Takes a pod that is set back (lib/flapping.lua) and not blocked otherwise, for a call that would be refused. Returns it, its
-- pool, and the status of a blocked pod: it stays out of `available`. Checks at most 100 pods of a pool.
local function take_set_back(pools, kinds)
  for i, pool in ipairs(pools) do
    local kind, max = parse_kind(kinds[i])
    local found = kind and read_or_nil('ZINTER', 2, Key.flapping, Key.assigned(pool)) or {}
    for k = 1, math.min(100, #found) do
      local home, block, _, draining = read_pod(found[k])
      local load = read_or_nil('ZCARD', Key.pod_calls(found[k])) or max
      local is_free = home == pool and block == 'flapping' and not block_of(draining, false) and load < max
      if is_free then return found[k], pool, 'draining' end
    end
  end
end
