-- Makes a batch of pods known: assigns pools, applies suspensions, makes the rest available.
-- ARGV: 2 epoch, 3 tombstone ms, 4 JSON {candidates: [[pool, target]...], last: pool,
--       pods: [{name, uid, pool ('' = choose), suspended ('' = ready), must_report, metadata}...]}
-- Result: {'ok', {pod, outcome, pool, lost sid...}...} with outcome 'new' | 'known' | 'moved' | 'waiting'
--         {'stale_epoch'}
-- Guarantee: idempotent; a pod moves only to a pool that may have the calls it has; another UID is another
-- pod, so the old one's calls end first.
--#include base
--#include epoch
--#include leave
--#include settle
if is_stale(tonumber(ARGV[2])) then return { 'stale_epoch' } end
local grace, request = ARGV[3], cjson.decode(ARGV[4])

-- The first pool under its target: merchant pools first, then the chain; else the chain's last.
local function choose()
  for _, candidate in ipairs(request.candidates) do
    if call('SCARD', P .. candidate[1] .. ':assigned') < candidate[2] then return candidate[1] end
  end
  return request.last
end

local function register(pod)
  local name, lost = pod.name, {}
  local current = pool_of(call('GET', P .. 'pod:tier:' .. name))
  local uid = call('HGET', P .. 'pod:' .. name, 'uid')
  if uid and uid ~= '' and pod.uid ~= '' and uid ~= pod.uid then
    lost = forget(name, grace, 'replaced by a pod of the same name')
    current = nil
  end

  local pool, outcome = pod.pool, 'known'
  if pool == '' then pool = (kind_of(current) and current) or choose() end
  if not current then
    outcome = 'new'
  elseif pool ~= current then
    -- A merchant pool that does not exist yet will be exclusive.
    local kind, max = kind_of(pool)
    if load_of(name) > (kind and max or 1) then
      pool, outcome = current, 'waiting'
    else
      leave(name, current)
      outcome = 'moved'
    end
  end

  call('SADD', P .. pool .. ':assigned', name)
  if outcome ~= 'waiting' and string.sub(pool, 1, 9) == 'merchant:' and not kind_of(pool) then
    call('HSET', P .. 'pools', pool, 'label')
  end
  if pool ~= current then
    call('SET', P .. 'pod:tier:' .. name, tier_of(pool))
    local entries = call('ZRANGE', pod_calls_key(name), 0, -1, 'WITHSCORES')
    for i = 1, #entries, 2 do call('ZADD', pool_calls_key(pool), entries[i + 1], entries[i]) end
    event('pod_registered', 'pod', name, 'pool', pool, 'outcome', outcome)
  end
  -- A field of its own, so that a suspension that comes and goes does not stand in for the report.
  if not current and pod.must_report then call('HSET', P .. 'pod:' .. name, 'must_report', 1) end
  if pod.suspended == '' and call('HEXISTS', P .. 'pod:' .. name, 'must_report') == 1 then
    pod.suspended = 'awaiting_report'
  end
  local suspension = P .. 'pod:suspended:' .. name
  if pod.suspended ~= '' then
    call('SET', suspension, pod.suspended)
  elseif call('GET', suspension) ~= 'awaiting_report' and call('DEL', suspension) == 1 then
    event('pod_resumed', 'pod', name, 'pool', pool)
  end
  if pod.uid ~= '' and (uid ~= pod.uid or not current) then call('HSET', P .. 'pod:' .. name, 'uid', pod.uid) end
  if call('HGET', P .. 'pod:metadata', name) ~= pod.metadata then
    call('HSET', P .. 'pod:metadata', name, pod.metadata)
  end
  settle(name)
  table.insert(lost, 1, name)
  table.insert(lost, 2, outcome)
  table.insert(lost, 3, pool)
  return lost
end

local results = { 'ok' }
for _, pod in ipairs(request.pods) do table.insert(results, register(pod)) end
return results
