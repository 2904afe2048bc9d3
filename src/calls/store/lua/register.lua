-- Registers a batch of pods: assigns pools, applies suspensions, makes the others available.
-- ARGV: 2 epoch ('' = the pod registers itself), 3 tombstone TTL ms, 4 JSON {candidates: [[pool, target]...], last: pool,
--       pods: [{name, uid, pool ('' = choose), suspended ('' = ready), idle_goes (remove it without a call or a drain),
--       idle_stays (unless its container ended), must_report, restarts?, ended, started_at?, metadata}...]}
-- Result: {'ok', {pod, outcome, pool, lost sid...}...} | {'stale_epoch'}
--         outcome 'new' | 'known' | 'replaced' (with calls) | 'moved' | 'waiting' | 'removed' | 'skipped' | 'unreadable', with
--         the key of a wrong type instead of the pool
-- Guarantee: idempotent; a pod moves only to a pool that allows the calls it has; another UID is another pod, and a
-- container that ended has lost its calls: those end first, except calls that began after started_at.
--#include base epoch removal settle unreadable silence predecessor
if ARGV[2] == '' then
  allow_at_maxmemory()
elseif is_stale(tonumber(ARGV[2])) then
  return { 'stale_epoch' }
end
local grace, request = ARGV[3], cjson.decode(ARGV[4])
-- The first pool under its target: merchant pools first, then the chain; else the chain's last.
local function choose()
  for _, candidate in ipairs(request.candidates) do
    if (read_or_nil('SCARD', Key.assigned(candidate[1])) or math.huge) < candidate[2] then return candidate[1] end
  end
  return request.last
end
local function answer(name, outcome, pool, lost)
  for i, value in ipairs({ name, outcome, pool }) do table.insert(lost, i, value) end
  return lost
end
local function register(pod)
  local name, lost, outcome, replaced = pod.name, {}, 'known', false
  local current, wrong = home_of(name), set_aside(name)
  local suspension = Key.pod_suspended(name)
  if wrong and current and pod.suspended ~= '' then call('SET', suspension, pod.suspended) end
  if wrong then return answer(name, 'unreadable', wrong, lost) end
  local uid, restarts, older = unpack(call('HMGET', Key.pod(name), 'uid', 'restarts', 'predecessors'))
  local ended = pod.ended or restarts and pod.restarts and pod.restarts > (tonumber(restarts) or pod.restarts)
  if uid and uid ~= '' and pod.uid ~= '' and uid ~= pod.uid then
    if ARGV[2] == '' and is_predecessor(name, pod.uid, older) then return answer(name, 'skipped', current or '', lost) end
    lost, current = forget(name, grace, 'replaced by a pod of the same name', pod.started_at)
    restarts, outcome, replaced = false, 'replaced', true
  elseif ended then
    local how = pod.ended and 'has ended' or 'was restarted'
    lost = lose_calls(name, current, grace, 'its container ' .. how, pod.started_at)
  end
  local goes = pod.idle_goes and not (pod.idle_stays and current and not ended)
  if goes and load_of(name) + call('EXISTS', Key.pod_draining(name)) == 0 then
    if current then forget(name, grace, 'not ready') end
    return answer(name, current and 'removed' or 'skipped', current or '', lost)
  end
  local pool = pod.pool
  if pool == '' then pool = (kind_of(current) and current) or choose() end
  -- The store does not have this tier: it lost its data, and the leader has not written the tiers yet.
  if not kind_of(pool) and not is_merchant(pool) then pool = current end
  if not pool and replaced then forget(name, grace, '') end -- also the drain that it kept
  if not pool then return answer(name, 'skipped', '', lost) end
  if not current then
    outcome = 'new'
  elseif pool ~= current then
    local kind, max = kind_of(pool) -- a new merchant pool becomes exclusive
    if load_of(name) > (kind and max or 1) then
      pool, outcome = current, 'waiting'
    else
      leave(name, current)
      outcome = 'moved'
    end
  end
  write_or_skip('SADD', Key.assigned(pool), name)
  if outcome ~= 'waiting' and is_merchant(pool) and not kind_of(pool) then
    write_or_skip('HSET', Key.pools, pool, 'label')
  end
  if pool ~= current or replaced then
    call('SET', Key.pod_tier(name), tier_of(pool))
    local entries = call('ZRANGE', Key.pod_calls(name), 0, -1, 'WITHSCORES')
    for i = 1, #entries, 2 do write_or_skip('ZADD', Key.pool_calls(pool), entries[i + 1], entries[i]) end
    event('pod_registered', 'pod', name, 'pool', pool, 'outcome', outcome)
  end
  -- A separate field: the end of another suspension must not replace the report.
  if ARGV[2] == '' then note_report(name, '') end
  if (not current or replaced) and pod.must_report then call('HSET', Key.pod(name), 'must_report', 1) end
  if pod.suspended == '' and call('HEXISTS', Key.pod(name), 'must_report') == 1 then
    pod.suspended = 'awaiting_report'
  end
  local before = text_at(suspension)
  release_hold(name)
  if pod.suspended ~= '' then
    call('SET', suspension, pod.suspended)
  elseif before and before ~= 'awaiting_report' and not (before == 'flapping' and cools_off(name)) then
    call('DEL', suspension)
    event('pod_resumed', 'pod', name, 'pool', pool)
  end
  if pod.restarts and tostring(pod.restarts) ~= restarts then call('HSET', Key.pod(name), 'restarts', pod.restarts) end
  if pod.uid ~= '' and (uid ~= pod.uid or not current) then call('HSET', Key.pod(name), 'uid', pod.uid) end
  if replaced and ARGV[2] == '' then note_predecessor(name, uid, older) end
  if read_or_nil('HGET', Key.pod_metadata, name) ~= pod.metadata then write_or_skip('HSET', Key.pod_metadata, name, pod.metadata) end
  settle(name)
  return answer(name, outcome, pool, lost)
end
local results = { 'ok' }
for i, pod in ipairs(request.pods) do results[i + 1] = register(pod) end
serve_freed()
return results
