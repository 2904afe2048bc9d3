--#include base pods
-- Sets back a pod on which calls fail: allocate uses it only if its chain has no other free pod (take_set_back in
-- lib/take.lua), for 10 s, then twice as long each time, up to 5 min. A call that lasts ends it. At most half of a pool.

-- True if calls last on most other pods of the pool, of up to 10 samples: if all calls are short, the callers hang up. A pod
-- counts by its last call, or by its live call if none has ended.
local function differs(pod, pool)
  local good, bad = 0, 0
  for _, other in ipairs(read_or_nil('SRANDMEMBER', Key.assigned(pool), 10) or {}) do
    local failures = (read_or_nil('HMGET', Key.pod(other), 'failures') or {})[1] or ''
    local has_only_begun = failures == '' and (read_or_nil('ZCARD', Key.pod_calls(other)) or 0) > 0
    if other ~= pod and (failures == '0' or has_only_begun) then good = good + 1 end
    if other ~= pod and failures ~= '0' and failures ~= '' then bad = bad + 1 end
  end
  return good > bad
end

-- `failures`: failed calls in a row; `before`: set-backs since the last call that did not fail. True if the pod is set back
-- now; the caller removes it from `available`.
local function set_back(pod, pool, value, load, failures, before)
  local cooling = parse_kind(value) and read_or_nil('ZINTER', 2, Key.flapping, Key.assigned(pool))
  if not cooling or #cooling >= math.floor(call('SCARD', Key.assigned(pool)) / 2) then return false end
  local ends_at = digits(now + math.min(300000, 10000 * 2 ^ before))
  call('ZADD', Key.flapping, ends_at, pod)
  call('SET', Key.pod_suspended(pod), 'flapping')
  redis.pcall('HSET', Key.pod(pod), 'set_backs', before + 1)
  event('pod_suspended', 'pod', pod, 'pool', pool, 'calls', load, 'reason', 'flapping', 'failures', failures, 'until', ends_at)
  return true
end
