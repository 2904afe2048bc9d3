-- Gives a call a pod, or the pod it already has.
-- ARGV: 2 sid, 3 merchant, 4 provider, 5 flow, 6 template, 7 first lease ms, 8 record ttl ms (not below it),
--       9 tombstone ms, 10 refuse after (store ms, '' = never), 11.. the chain's pool ids
-- Result: {'ok', pod, pool, allocated_at, deadline, fence, was_existing, reclaimed, now}
--         {'no_pods', now} | {'late', now}
-- Guarantee: the same SID gets the same pod while its call lives; an exclusive pod has one call, a shared
-- one at most its limit, whatever the derived sets say; blocked and unknown pods are never given.
--#include base
--#include iso
--#include counter
--#include calls
--#include pods
local sid, lease, info_ttl, grace = ARGV[2], ARGV[7], ARGV[8], ARGV[9]
local not_after = tonumber(ARGV[10])
local deadline = now + lease
-- Its caller has been told that it failed: it must not take a pod now.
if not_after and now > not_after then return { 'late', now } end

local record_key = call_key(sid)
local record = call('HMGET', record_key, 'pod_name', 'source_pool', 'allocated_at', 'fence')
if record[1] then
  local pod = record[1]
  local held = call('ZSCORE', pod_calls_key(pod), sid)
  if held then
    deadline = math.max(deadline, tonumber(held))
    move_lease(sid, pod, (read_pod(pod)), deadline, info_ttl)
    call('HSET', record_key, 'asked_again', 1)
    call('SET', P .. 'lease:' .. pod, sid, 'PX', digits(deadline - now))
    return { 'ok', pod, record[2], record[3], deadline, record[4], 1, 0, now }
  end
  call('DEL', record_key)
end

-- The available sets are derived, so a candidate is checked against the truth. One that fails leaves
-- them (the sweep puts it back when it may); 100 such in one pool means damage, and the next step is tried.
local function take(pool, kind, max)
  local key = available_key(pool)
  for _ = 1, 100 do
    local pod
    if kind == 'exclusive' then
      pod = call('SPOP', key)
    else
      pod = call('ZRANGEBYSCORE', key, '-inf', '(' .. max, 'LIMIT', 0, 1)[1]
    end
    if not pod then return nil end
    local home, block = read_pod(pod)
    local load = load_of(pod)
    if home == pool and not block and load < max then return pod, load end
    if kind == 'shared' then
      if home == pool then place(pod, pool, kind, load, block) else call('ZREM', key, pod) end
    end
  end
end

local kinds = #ARGV > 10 and call('HMGET', P .. 'pools', unpack(ARGV, 11)) or {}
local pod, load, pool, kind, max
for i, value in ipairs(kinds) do
  kind, max = parse_kind(value)
  if kind then
    pool = ARGV[10 + i]
    pod, load = take(pool, kind, max)
    if pod then break end
  end
end

-- Nothing free: calls of the chain whose lease has run out give their pods back now. What only this needs is
-- included here, so that the common way does not pay for it: a function costs 0.1 us to define.
local reclaimed = 0
if not pod then
--#include reclaim
  for i, value in ipairs(kinds) do
    kind, max = parse_kind(value)
    pool = ARGV[10 + i]
    local expired = kind and call('ZRANGEBYSCORE', pool_calls_key(pool), '-inf', now, 'LIMIT', 0, 50) or {}
    for _, old in ipairs(expired) do
      reclaimed = reclaimed + reclaim(old, pool, grace)
      pod, load = take(pool, kind, max)
      if pod then break end
    end
    if pod then break end
  end
end
if not pod then
  event('no_pods', 'call', sid, 'merchant', ARGV[3], 'chain', table.concat(ARGV, ' ', 11))
  return { 'no_pods', now }
end

local fence, allocated_at, score = next_count(P .. 'fence'), iso(now), digits(deadline)
local added = call('ZADD', pod_calls_key(pod), score, sid)
if kind == 'shared' then call('ZADD', available_key(pool), load + added, pod) end
call('ZADD', pool_calls_key(pool), score, sid)
call('HSET', record_key, 'pod_name', pod, 'source_pool', pool, 'merchant_id', ARGV[3],
  'allocated_at', allocated_at, 'fence', fence, 'provider', ARGV[4], 'flow', ARGV[5], 'template', ARGV[6])
call('PEXPIRE', record_key, info_ttl)
call('SET', P .. 'lease:' .. pod, sid, 'PX', lease)
call('HSET', P .. 'pod:' .. pod, 'status', 'allocated', 'allocated_call_sid', sid,
  'allocated_at', allocated_at, 'source_pool', pool)
event('call_allocated', 'call', sid, 'pod', pod, 'pool', pool, 'merchant', ARGV[3], 'fence', fence)
return { 'ok', pod, pool, allocated_at, deadline, fence, 0, reclaimed, now }
