-- Imports calls of an earlier router: some of the pods that have keys of ours, some of its call records.
-- ARGV: 2 lease ms, 3 record TTL ms, 4 tombstone TTL ms, 5 the shared pools as a JSON list, 6 number of pods, 7.. those
--       pods, then SIDs
-- Result: number of calls imported
-- Guarantee: first ends the calls that the earlier router ended, so that a pod never shows two calls. An imported call gets
-- a whole lease, or the rest of its own if that is longer: callers that never renew, or could not while no router ran, keep
-- their pod through the cut-over, and every call ends. A call of ours with time left does not change, so that the import
-- may run twice.
--#include base counter removal reclaim unreadable
local lease, info_ttl, grace = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local pods, shared, cleaned, imported = tonumber(ARGV[6]), {}, {}, 0
-- The first write: at maxmemory Redis refuses it before anything has changed.
next_count(Key.fence)
for _, pool in ipairs(cjson.decode(ARGV[5])) do shared[pool] = true end

local function owner_of(sid)
  return (read_or_nil('HMGET', Key.call(sid), 'pod_name') or {})[1]
end

-- Imports a call that is live for the earlier router: its lease names the latest call of a pod, and only a shared pod has
-- others.
local function import_call(sid, pod, pool, holder)
  if owner_of(sid) ~= pod or not (holder == sid or (holder and shared[pool])) then return end
  local deadline = tonumber(call('ZSCORE', Key.pod_calls(pod), sid) or 0)
  if deadline > now and call('HEXISTS', Key.call(sid), 'fence') == 1 then return end
  local left = holder == sid and math.max(lease, call('PTTL', Key.lease(pod))) or lease
  call('HSETNX', Key.call(sid), 'fence', next_count(Key.fence))
  move_lease(sid, pod, pool, now + left, info_ttl)
  if holder == sid then call('PEXPIRE', Key.lease(pod), digits(left)) end
  event('call_imported', 'call', sid, 'pod', pod, 'pool', pool or '')
  imported = imported + 1
end

-- Ends the calls that the earlier router ended, or whose pod it gave to another call after their lease. False for an
-- unreadable pod.
local function clean(pod)
  if cleaned[pod] ~= nil then return cleaned[pod] end
  cleaned[pod] = not wrong_key(pod)
  if not cleaned[pod] then return false end
  local pool, _, holder = read_pod(pod)
  local moved_on = holder and not shared[pool] and owner_of(holder) == pod
  for _, sid in ipairs(call('ZRANGE', Key.pod_calls(pod), 0, -1)) do
    if moved_on and sid ~= holder then call('ZADD', Key.pod_calls(pod), 0, sid) end
    import_call(sid, pod, pool, holder)
  end
  if holder then import_call(holder, pod, pool, holder) end
  end_expired(pod, pool, grace, 'lease expired')
  return true
end

-- A pool whose type changed since is converted with the configuration, right after the import, and its pods settled there.
local function has_its_type(pool)
  local kind, found = kind_of(pool), pool and call('TYPE', available_key(pool)).ok
  return not kind or found == 'none' or found == (kind == 'shared' and 'zset' or 'set')
end

for i = 7, 6 + pods do
  local pod = ARGV[i]
  local pool, _, holder = read_pod(pod)
  if pool or holder then clean(pod) elseif not wrong_key(pod) then forget(pod, grace, 'removed by an earlier router') end
end
for i = 7 + pods, #ARGV do
  local sid = ARGV[i]
  local pod = owner_of(sid)
  if pod and pod ~= '' and clean(pod) then
    local pool, _, holder = read_pod(pod)
    import_call(sid, pod, pool, holder)
  end
end
for pod, is_clean in pairs(cleaned) do
  local pool, _, holder = read_pod(pod)
  -- The lease of a shared pod may name an ended call. It stays: without it the pod's other calls, which may come with another
  -- page, would not count as live.
  local may_get_more = holder and shared[pool] and is_clean and load_of(pod) == 0
  if is_clean and not may_get_more and has_its_type(pool) then settle(pod) end
end
serve_freed()
return imported
