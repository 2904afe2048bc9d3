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
