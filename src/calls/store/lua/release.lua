-- Ends a call and makes its pod available again, unless the pod is blocked.
-- ARGV: 2 sid, 3 fence ('' = any), 4 tombstone ms, 5 'unclaimed' = only if nobody has asked for it again
-- Result: {'ok', pod, released_to ('' = none), was_draining, live calls left} | {'not_found'}
--         {'stale_fence', the call's fence} | {'claimed'}
-- Guarantee: frees only what the named call owns; a second release finds nothing and changes nothing.
--#include base
--#include iso
--#include calls
--#include settle
local sid, grace = ARGV[2], ARGV[4]
local record = call('HMGET', call_key(sid), 'pod_name', 'fence', 'asked_again', 'renewed_at', 'source_pool')
local pod = record[1]
if not pod then return { 'not_found' } end
if ARGV[3] ~= '' and record[2] ~= ARGV[3] then return { 'stale_fence', record[2] or '' } end
if ARGV[5] == 'unclaimed' and (record[3] or record[4]) then return { 'claimed' } end
if call('ZREM', pod_calls_key(pod), sid) == 0 then
  call('DEL', call_key(sid))
  return { 'not_found' }
end

local pool, block, lease = read_pod(pod)
bury(sid, pool or record[5], grace)
local load = load_of(pod)
local kind = kind_of(pool)
if pool then place(pod, pool, kind, load, block) end
mirror_lease(pod, load, lease)
if pool then
  call('HSET', P .. 'pod:' .. pod, 'status', status_of(load, block), 'released_at', iso(now),
    'allocated_call_sid', load > 0 and call('GET', P .. 'lease:' .. pod) or '')
end
local draining = (block == 'draining' or block == 'terminating') and 1 or 0
local released_to = (not block and kind) and pool or ''
event('call_released', 'call', sid, 'pod', pod, 'pool', released_to)
return { 'ok', pod, released_to, draining, load }
