--#include base pods
-- What would free a place next, without a release: {'lease' | 'drain' | 'limit', pod, sid, time in ms}, or nil. Each looks at the
-- first 100 candidates.
local MAX_LOOKED_AT = 100

local function read_after_now(key)
  return read_or_nil('ZRANGEBYSCORE', key, '(' .. digits(now), '+inf', 'WITHSCORES', 'LIMIT', 0, MAX_LOOKED_AT) or {}
end

-- A call that ends frees a place on its pod, unless the pod is blocked or has more calls than its limit.
local function next_lease(pool, max)
  local found = read_after_now(Key.pool_calls(pool))
  for i = 1, #found, 2 do
    local pod = (read_or_nil('HMGET', Key.call(found[i]), 'pod_name') or {})[1]
    local home, block = read_pod(pod or '')
    local load = pod and read_or_nil('ZCARD', Key.pod_calls(pod))
    if home == pool and not block and load and load <= max then
      return { 'lease', pod, found[i], found[i + 1] }
    end
  end
end

-- `kinds`: of the pools of the chain, by pool id.
local function next_drain(kinds)
  local found = read_after_now(Key.drains)
  for i = 1, #found, 2 do
    local pool, block = read_pod(found[i])
    local _, max = parse_kind(kinds[pool or ''])
    local load = read_or_nil('ZCARD', Key.pod_calls(found[i]))
    if block == 'draining' and load and load < max then
      return { 'drain', found[i], '', found[i + 1] }
    end
  end
end

-- The call of a merchant at its limit that ends first.
local function next_of_limit(merchant)
  local first
  for _, sid in ipairs(read_or_nil('SRANDMEMBER', Key.limited(merchant), MAX_LOOKED_AT) or {}) do
    local pod = (read_or_nil('HMGET', Key.call(sid), 'pod_name') or {})[1]
    local deadline = pod and read_or_nil('ZSCORE', Key.pod_calls(pod), sid)
    if deadline and (not first or tonumber(deadline) < tonumber(first[4])) then first = { 'limit', pod, sid, deadline } end
  end
  return first
end
