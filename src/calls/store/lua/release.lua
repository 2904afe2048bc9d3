-- Ends a call and makes its pod available again, unless the pod is blocked.
-- ARGV: 2 sid, 3 fence ('' = any), 4 tombstone TTL ms, 5 'unclaimed' = only if the call was not requested again,
--       6 current time in ISO 8601 as the router estimates it ('' = formatted here), 7.. fields of the event: 'reason' and
--       'connect_failed' if the caller could not connect to the pod, then 'by' and the operator who ends it; mostly none
-- Result: 'ok', pod, released_to ('' = none), was_draining, live calls left, pool, 1 = the pod was blocked, as lines of one
--         string | {'not_found'} | {'stale_fence', the call's fence} | {'claimed'} | {'was_waiting', ms waited}
-- Guarantee: releases only the named call; a second release changes nothing. A waiting call gets the pod in the same step,
-- unless Redis is out of memory. Keys for operators are written with pcall: a wrong type must not stop it half-way.
--#include start
local sid, grace = ARGV[2], ARGV[4]
local record_key = Key.call(sid)
local record = call('HMGET', record_key, 'pod_name', 'fence', 'renewed_at', 'hold', 'limited')
local pod, merchant = record[1], record[5]
if not pod and record[4] then
  if ARGV[3] ~= '' then return { 'stale_fence', '' } end
  --#include base queues
  local waited = end_wait_of(sid, 'wait_abandoned', 'released')
  call('SET', Key.wait_released(sid), digits(now + grace), 'PX', grace)
  return { 'was_waiting', waited }
end
if not pod then return { 'not_found' } end
if ARGV[3] ~= '' and record[2] ~= ARGV[3] then return { 'stale_fence', record[2] or '' } end
if ARGV[5] == 'unclaimed' and (record[3] or call('HGET', record_key, 'asked_again')) then return { 'claimed' } end
local calls_key = Key.pod_calls(pod)
local truth = call('MGET', Key.pod_tier(pod), Key.pod_draining(pod), Key.pod_suspended(pod))
local tier = truth[1]
local pool = tier and (string.sub(tier, 1, 9) == 'merchant:' and tier or 'pool:' .. tier)
local hands_over, fence = merchant ~= false or pool and call('EXISTS', Key.waiting(pool)) == 1
if hands_over then
  --#include counter
  hands_over, fence = pcall(next_count, Key.fence) -- the first write: Redis refuses it at maxmemory
end
if call('ZREM', calls_key, sid) == 0 then
  call('DEL', record_key)
  return { 'not_found' }
end
local tombstones = Key.tombstones(math.floor(now / TOMBSTONE_SLICE_MS)) -- as leave_tombstone in lib/tombstones.lua
redis.pcall('HSET', tombstones, sid, string.format('%.0f', now + grace))
call('PEXPIRE', tombstones, grace)
local index = pool or call('HGET', record_key, 'source_pool') or ''
redis.pcall('ZREM', Key.pool_calls(index), sid)
local load = call('ZCARD', calls_key)
local kind = pool and redis.pcall('HGET', Key.pools, pool)
if kind and kind.err then kind = nil end
local released_to, draining, released_at, was_set_back = pool, '0', ARGV[6], '0'
if released_at == '' then
  --#include iso
  released_at = iso(now)
end
-- The fence is the time of the allocation in microseconds. If it is ahead of now, the clock was set back: age unknown.
local age = now - math.floor((tonumber(record[2]) or 0) / 1000)
local failures, is_refused = '0', ARGV[7] == 'reason'
if pool and (record[4] or is_refused or ARGV[5] ~= '' or age >= 0 and age < 5000 and not record[3]) then
  --#include failures
  failures, was_set_back = count_failure(pod, pool, kind, load, truth[3], is_refused, ARGV[5] ~= '' or record[4])
  if was_set_back == '1' then truth[3] = 'flapping' end
elseif truth[3] == 'flapping' then
  --#include base
  call('DEL', Key.pod_suspended(pod))
  redis.pcall('ZREM', Key.flapping, pod)
  truth[3] = false
  event('pod_resumed', 'pod', pod, 'pool', pool or '')
end
if merchant then
  --#include base queues
  write_or_skip('SREM', Key.limited(merchant), sid)
  if hands_over then list_queue(merchant, true) end
end
if not merchant and kind == 'exclusive' and load == 0 and not truth[2] and not truth[3] and pool ~= tier then
  call('DEL', record_key, Key.lease(pod))
  redis.pcall('XADD', Key.events, 'MAXLEN', '~', EVENTS_MAX, '*', 'type', 'call_released', 'call', sid, 'pod', pod,
    'pool', released_to, unpack(ARGV, 7))
  if hands_over then
    --#include base handover
    load = hand_over(pod, pool, 1, 0, fence, 'released_at', released_at, 'failures', failures)
  end
  if load == 0 then
    redis.pcall('SADD', Key.available(pool), pod)
    redis.pcall('HSET', Key.pod(pod), 'status', 'available', 'released_at', released_at, 'allocated_call_sid', '',
      'failures', failures)
  end
else
  --#include base settle
  local block, left, shown = block_of(truth[2], truth[3]), load, { 'released_at', released_at, 'failures', failures }
  call('DEL', record_key)
  kind = parse_kind(kind)
  if block == 'draining' or block == 'terminating' then draining = '1' end
  if block or not kind then released_to = '' end
  note('call_released', 'call', sid, 'pod', pod, 'pool', released_to, unpack(ARGV, 7)) -- before a call is handed over
  if pool then load = select(2, place(pod, pool, kind, load, block, hands_over, fence, unpack(shown))) end
  local named = load == left and mirror_lease(pod, load, load == 0) -- not read first: it may name the ended call
  if pool and named then
    redis.pcall('HSET', Key.pod(pod), 'status', status_of(load, block), 'allocated_call_sid', named, unpack(shown))
  end
  if merchant and hands_over then
    --#include serve
    serve_queue(merchant)
  end
end
return table.concat({ 'ok', pod, released_to or '', draining, load, pool or '', was_set_back }, '\n')
