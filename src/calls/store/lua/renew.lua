-- Extends a call's lease; also that of a call past its deadline that has not been ended yet.
-- ARGV: 2 sid, 3 fence ('' = any), 4 lease ms, 5 record TTL ms
-- Result: {'ok', deadline, pod} | {'not_found'} | {'stale_fence', the call's fence}
--#include base iso calls pods
local sid, lease = ARGV[2], ARGV[4]
local record = call('HMGET', Key.call(sid), 'pod_name', 'fence')
local pod = record[1]
if not pod or not call('ZSCORE', Key.pod_calls(pod), sid) then return { 'not_found' } end
if ARGV[3] ~= '' and record[2] ~= ARGV[3] then return { 'stale_fence', record[2] or '' } end
local pool, _, mirrored = read_pod(pod)
move_lease(sid, pod, pool, now + lease, ARGV[5])
call('HSET', Key.call(sid), 'renewed_at', iso(now))
call('SET', Key.lease(pod), mirrored or sid, 'PX', lease)
return { 'ok', now + lease, pod }
