--#include base
--#include pods
-- Sets back a pod on which calls fail: it is used only when its chain has no other free pod (take_set_back in lib/take.lua),
-- for 10 s, and for twice as long each further time, up to 5 min. A call that lasts ends it. Never more than half of a pool.

-- Whether calls last on most of the other pods, of which up to 10 are looked at: where all calls of a pool are short, its
-- callers hang up. A pod counts by its last call, or by the one that it has if none has ended.
local function differs(pod, pool)
  local good, bad = 0, 0
  for _, other in ipairs(read_or_nil('SRANDMEMBER', P .. pool .. ':assigned', 10) or {}) do
    local failures = (read_or_nil('HMGET', P .. 'pod:' .. other, 'failures') or {})[1] or ''
    local has_only_begun = failures == '' and (read_or_nil('ZCARD', pod_calls_key(other)) or 0) > 0
    if other ~= pod and (failures == '0' or has_only_begun) then good = good + 1 end
    if other ~= pod and failures ~= '0' and failures ~= '' then bad = bad + 1 end
  end
  return good > bad
end

-- `failures`: failed calls in a row; `before`: how often it was set back since the last one that did not fail. True if the
-- pod is set back now; the caller takes it out of the available ones.
local function set_back(pod, pool, value, load, failures, before)
  local cooling = parse_kind(value) and read_or_nil('ZINTER', 2, P .. 'flapping', P .. pool .. ':assigned')
  if not cooling or #cooling >= math.floor(call('SCARD', P .. pool .. ':assigned') / 2) then return false end
  local untl = digits(now + math.min(300000, 10000 * 2 ^ before))
  call('ZADD', P .. 'flapping', untl, pod)
  call('SET', P .. 'pod:suspended:' .. pod, 'flapping')
  redis.pcall('HSET', P .. 'pod:' .. pod, 'set_backs', before + 1)
  event('pod_suspended', 'pod', pod, 'pool', pool, 'calls', load, 'reason', 'flapping', 'failures', failures, 'until', untl)
  return true
end
