--#include base
--#include pods
-- A pod of the pool, its load, and for a shared pool the key of its scores. `available` is derived, so a candidate
-- is checked against the truth; one that fails leaves it until the sweep. 100 such mean damage: on to the next pool.
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
    local load = read_or_nil('ZCARD', pod_calls_key(pod))
    block = block or not load
    if home == pool and not block and load < max then return pod, load, kind == 'shared' and key end
    if kind == 'shared' and home == pool then place(pod, pool, kind, load, block) end
    if kind == 'shared' and home ~= pool then call('ZREM', key, pod) end
  end
end

-- A pod that was set back (lib/flapping.lua) and that nothing else blocks, its pool, and the status of a blocked pod: for
-- a call that would get none. The pod stays out of `available`. At most 100 of a pool are looked at.
local function take_set_back(pools, kinds)
  for i, pool in ipairs(pools) do
    local kind, max = parse_kind(kinds[i])
    local found = kind and read_or_nil('ZINTER', 2, P .. 'flapping', P .. pool .. ':assigned') or {}
    for k = 1, math.min(100, #found) do
      local home, block, _, draining = read_pod(found[k])
      local load = read_or_nil('ZCARD', pod_calls_key(found[k])) or max
      local is_free = home == pool and block == 'flapping' and not block_of(draining, false) and load < max
      if is_free then return found[k], pool, 'draining' end
    end
  end
end
