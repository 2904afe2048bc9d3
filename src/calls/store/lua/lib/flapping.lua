--#include base pods
-- Blocks a pod that callers cannot connect to: from the third failed call in a row for 10 s, and twice as long for each
-- further one, up to 5 min. At most half of a pool is blocked, and a pod only if another pod of the pool is free.

-- The time of a failed release ends in +00:00, of any other in Z: the last release then says whether it failed, and an
-- ordinary release needs no command to reset the count.
local function failed_at(released_at)
  return (string.gsub(released_at, 'Z$', '+00:00'))
end

local function has_other_free(pod, pool, kind, max)
  local key = available_key(pool)
  if kind == 'exclusive' then return call('SCARD', key) > call('SISMEMBER', key, pod) end
  local own = tonumber(call('ZSCORE', key, pod) or max)
  return call('ZCOUNT', key, '-inf', '(' .. max) > (own < max and 1 or 0)
end

-- `value`: the stored kind of the pool; `suspended`: why the pod is already blocked, or false. True if the pod is blocked now;
-- the caller takes it out of `available`, and writes `released_at` in the form of `failed_at`.
local function cool_off(pod, pool, value, load, suspended)
  local kind, max = parse_kind(value)
  local known = read_or_nil('HMGET', Key.pod(pod), 'released_at', 'failures')
  if not known then return false end
  local in_a_row = string.sub(known[1] or '', -6) == '+00:00'
  local failures = (in_a_row and tonumber(known[2] or 0) or 0) + 1
  call('HSET', Key.pod(pod), 'failures', failures)
  if failures < 3 or suspended or not kind then return false end
  local cooling = read_or_nil('ZINTER', 2, Key.flapping, Key.assigned(pool))
  if not cooling or #cooling >= math.floor(call('SCARD', Key.assigned(pool)) / 2) then return false end
  if not has_other_free(pod, pool, kind, max) then return false end
  local untl = digits(now + math.min(300000, 10000 * 2 ^ (failures - 3)))
  call('ZADD', Key.flapping, untl, pod)
  call('SET', Key.pod_suspended(pod), 'flapping')
  event('pod_suspended', 'pod', pod, 'pool', pool, 'calls', load, 'reason', 'flapping', 'failures', failures, 'until', untl)
  return true
end
