-- Ends a call and makes its pod available again, unless the pod is blocked.
-- ARGV: 2 sid, 3 fence ('' = any), 4 tombstone TTL ms, 5 'unclaimed' = only if the call was not requested again,
--       6 current time in ISO 8601 as the router estimates it ('' = formatted here),
--       7.. fields of the event: 'reason' and 'connect_failed' if the caller could not connect to the pod, then 'by' and the
--       operator who ends it; not for every call, because each argument costs time
-- Result: {'ok', pod, released_to ('' = none), was_draining, live calls left, pool, 1 = the pod was blocked} | {'not_found'}
--         {'stale_fence', the call's fence} | {'claimed'}
-- Guarantee: releases only the named call; a second release changes nothing. Derived keys and fields for operators are
-- written with pcall: a key of a wrong type must not stop the release half-way. The common path (an exclusive pod that is
-- not blocked) is inline, and rare paths include their functions, as in allocate.
--#include start
local sid, grace = ARGV[2], ARGV[4]
local record_key = Key.call(sid)
local record = call('HMGET', record_key, 'pod_name', 'fence')
local pod = record[1]
if not pod then return { 'not_found' } end
if ARGV[3] ~= '' and record[2] ~= ARGV[3] then return { 'stale_fence', record[2] or '' } end
if ARGV[5] == 'unclaimed' then
  local claims = call('HMGET', record_key, 'asked_again', 'renewed_at')
  if claims[1] or claims[2] then return { 'claimed' } end
end
local calls_key = Key.pod_calls(pod)
if call('ZREM', calls_key, sid) == 0 then
  call('DEL', record_key)
  return { 'not_found' }
end
-- As leave_tombstone in lib/tombstones.lua.
local stones = Key.tombstones(math.floor(now / TOMBSTONE_SLICE_MS))
redis.pcall('HSET', stones, sid, string.format('%.0f', now + grace))
call('PEXPIRE', stones, grace)

local truth = call('MGET', Key.pod_tier(pod), Key.pod_draining(pod), Key.pod_suspended(pod))
local tier = truth[1]
local pool = tier and (string.sub(tier, 1, 9) == 'merchant:' and tier or 'pool:' .. tier)
local index = pool or call('HGET', record_key, 'source_pool') or ''
redis.pcall('ZREM', Key.pool_calls(index), sid)
local load = call('ZCARD', calls_key)
local kind = pool and redis.pcall('HGET', Key.pools, pool)
if kind and kind.err then kind = nil end
local released_to, draining, released_at, set_back = pool, 0, ARGV[6], 0
if released_at == '' then
  --#include iso
  released_at = iso(now)
end
if ARGV[7] == 'reason' and pool then
  --#include flapping
  released_at = failed_at(released_at)
  if cool_off(pod, pool, kind, load, truth[3]) then truth[3], set_back = 'flapping', 1 end
end
if kind == 'exclusive' and load == 0 and not truth[2] and not truth[3] and pool ~= tier then
  redis.pcall('SADD', Key.available(pool), pod)
  call('DEL', record_key, Key.lease(pod))
  redis.pcall('HSET', Key.pod(pod), 'status', 'available', 'released_at', released_at, 'allocated_call_sid', '')
else
  --#include base settle
  local block = block_of(truth[2], truth[3])
  call('DEL', record_key)
  kind = parse_kind(kind)
  if pool then place(pod, pool, kind, load, block) end
  local named = mirror_lease(pod, load, text_at(Key.lease(pod)))
  if pool then
    redis.pcall('HSET', Key.pod(pod), 'status', status_of(load, block), 'released_at', released_at,
      'allocated_call_sid', named)
  end
  if block == 'draining' or block == 'terminating' then draining = 1 end
  if block or not kind then released_to = '' end
end
redis.pcall('XADD', Key.events, 'MAXLEN', '~', EVENTS_MAX, '*', 'type', 'call_released', 'call', sid, 'pod', pod,
  'pool', released_to, unpack(ARGV, 7))
return { 'ok', pod, released_to, draining, load, pool or '', set_back }
