-- Stops new calls on a pod at once; running calls go on.
-- ARGV: 2 pod, 3 how long the mark lasts, ms, 4.. 'by' and who, where that is known
-- Result: {'ok', live calls, deadline} | {'pod_not_found'}
-- Guarantee: the mark is never shortened, so that it lasts as long as anybody waits for it.
--#include base
--#include settle
--#include iso
local pod = ARGV[2]
if call('EXISTS', P .. 'pod:tier:' .. pod) == 0 then return { 'pod_not_found' } end
--#include passes
local key = P .. 'pod:draining:' .. pod
local before = text_at(key)
local deadline = math.max(now + tonumber(ARGV[3]), before and deadline_of(before) or 0)
call('SET', key, digits(deadline), 'PX', digits(deadline - now))
-- Whose drain it is, should the pod have been replaced by then.
call('HSET', P .. 'pod:' .. pod, 'drained_at', iso(now))
local _, load = settle(pod)
event('pod_draining', 'pod', pod, 'calls', load, 'until', digits(deadline), unpack(ARGV, 4))
return { 'ok', load, deadline }
