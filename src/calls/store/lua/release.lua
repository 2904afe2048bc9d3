-- Ends a call and makes its pod available again, unless the pod is blocked.
-- ARGV: 2 sid, 3 fence ('' = any), 4 tombstone ms, 5 'unclaimed' = only if nobody has asked for it again,
--       6 now in ISO 8601 as the router estimates it, for people ('' = write it here),
--       7.. fields for the event: 'reason' and 'connect_failed', if the caller could not connect to the pod, then 'by' and
--       who, if an operator ends it; not for every call, because each argument costs time
-- Result: {'ok', pod, released_to ('' = none), was_draining, live calls left, pool, 1 = it was set back} | {'not_found'}
--         {'stale_fence', the call's fence} | {'claimed'}
-- Guarantee: frees only what the named call owns; a second release finds nothing and changes nothing.
-- What is derived or for people is written with pcall: a key of another type must not stop the release half-way.
-- The common way (an exclusive pod that nothing blocks) is written out, as in allocate.
-- Flap guard: a call has failed if its caller could not connect, or if it ends within 5 s of its allocation and was neither
-- renewed nor reported. A proxy gives up on a dead pod after 2 to 3 s and the provider's status follows; few real calls are
-- as short. The third failed call in a row sets the pod back, a short one only if the pod differs from its pool. That takes
-- up to 12 commands: where all calls of a pool are short, only the third and every tenth in a row are worth them.
--#include start
local sid, grace = ARGV[2], ARGV[4]
local record_key = P .. 'call:' .. sid
local record = call('HMGET', record_key, 'pod_name', 'fence', 'renewed_at')
local pod = record[1]
if not pod then return { 'not_found' } end
if ARGV[3] ~= '' and record[2] ~= ARGV[3] then return { 'stale_fence', record[2] or '' } end
if ARGV[5] == 'unclaimed' and (record[3] or call('HGET', record_key, 'asked_again')) then return { 'claimed' } end
local calls_key = P .. 'pod:calls:' .. pod
if call('ZREM', calls_key, sid) == 0 then
  call('DEL', record_key)
  return { 'not_found' }
end
-- As leave_tombstone in lib/tombstones.lua.
local stones = P .. 'tombstones:' .. math.floor(now / 4000)
redis.pcall('HSET', stones, sid, string.format('%.0f', now + grace))
call('PEXPIRE', stones, grace)

local truth = call('MGET', P .. 'pod:tier:' .. pod, P .. 'pod:draining:' .. pod, P .. 'pod:suspended:' .. pod)
local tier = truth[1]
local pool = tier and (string.sub(tier, 1, 9) == 'merchant:' and tier or 'pool:' .. tier)
redis.pcall('ZREM', P .. (pool or call('HGET', record_key, 'source_pool') or '') .. ':calls', sid)
local load = call('ZCARD', calls_key)
local kind = pool and redis.pcall('HGET', P .. 'pools', pool)
if kind and kind.err then kind = nil end
local released_to, draining, released_at, was_set_back = pool, 0, ARGV[6], 0
if released_at == '' then
  --#include iso
  released_at = iso(now)
end
-- The fence is the moment of the allocation in microseconds. From ahead of now, the clock was set back: not known.
local age = now - math.floor((tonumber(record[2]) or 0) / 1000)
local failures, is_refused = '0', ARGV[7] == 'reason'
if pool and (is_refused or ARGV[5] ~= '' or age >= 0 and age < 5000 and not record[3]) then
  local known = redis.pcall('HMGET', P .. 'pod:' .. pod, 'failures', 'set_backs')
  local before = tonumber(known[2] or '') or 0
  failures = known[1] or ''
  if ARGV[5] == '' then -- a call that was given back before its caller knew of it says nothing
    failures = (tonumber(failures) or 0) + 1
    if failures == 1 and before > 0 then
      before = 0
      call('HDEL', P .. 'pod:' .. pod, 'set_backs')
    end
    if failures >= 3 and not truth[3] and (is_refused or before > 0 or failures == 3 or failures % 10 == 0) then
      --#include flapping
      if (is_refused or differs(pod, pool)) and set_back(pod, pool, kind, load, failures, before) then
        truth[3], was_set_back = 'flapping', 1
      end
    end
  end
elseif truth[3] == 'flapping' then
  --#include base
  call('DEL', P .. 'pod:suspended:' .. pod)
  redis.pcall('ZREM', P .. 'flapping', pod)
  truth[3] = false
  event('pod_resumed', 'pod', pod, 'pool', pool or '')
end
if kind == 'exclusive' and load == 0 and not truth[2] and not truth[3] and pool ~= tier then
  redis.pcall('SADD', P .. pool .. ':available', pod)
  call('DEL', record_key, P .. 'lease:' .. pod)
  redis.pcall('HSET', P .. 'pod:' .. pod, 'status', 'available', 'released_at', released_at, 'allocated_call_sid', '',
    'failures', failures)
else
  --#include base
  --#include settle
  local block = block_of(truth[2], truth[3])
  call('DEL', record_key)
  kind = parse_kind(kind)
  if pool then place(pod, pool, kind, load, block) end
  local named = mirror_lease(pod, load, text_at(P .. 'lease:' .. pod))
  if pool then
    redis.pcall('HSET', P .. 'pod:' .. pod, 'status', status_of(load, block), 'released_at', released_at,
      'allocated_call_sid', named, 'failures', failures)
  end
  if block == 'draining' or block == 'terminating' then draining = 1 end
  if block or not kind then released_to = '' end
end
redis.pcall('XADD', P .. 'events', 'MAXLEN', '~', '50000', '*', 'type', 'call_released', 'call', sid, 'pod', pod,
  'pool', released_to, unpack(ARGV, 7))
return { 'ok', pod, released_to, draining, load, pool or '', was_set_back }
