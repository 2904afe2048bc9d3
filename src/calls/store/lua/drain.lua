-- Stops new calls on a pod at once; running calls go on.
-- ARGV: 2 pod, 3 how long the mark lasts, ms, 4 uid ('' = not said), 5.. 'by' and who, where that is known
-- Result: {'ok', live calls, deadline} | {'pod_not_found'} | {'pod_replaced'}
-- Guarantee: the mark is never shortened, so that it lasts as long as a caller waits for it. A drain with another uid than
-- the registered one changes nothing; where no uid is registered, every drain passes.
--#include base
--#include settle
--#include iso
local pod, uid = ARGV[2], ARGV[4] or ''
if call('EXISTS', Key.pod_tier(pod)) == 0 then return { 'pod_not_found' } end
local known = uid ~= '' and call('HGET', Key.pod(pod), 'uid')
if known and known ~= '' and known ~= uid then return { 'pod_replaced' } end
--#include maxmemory
local key = Key.pod_draining(pod)
local before = text_at(key)
local deadline = math.max(now + tonumber(ARGV[3]), before and deadline_of(before) or 0)
call('SET', key, digits(deadline), 'PX', digits(deadline - now))
-- Whose drain it is, should the pod turn out to have been replaced: by its time, or, with a uid, the registered pod's.
if uid == '' then
  call('HSET', Key.pod(pod), 'drained_at', iso(now))
elseif not before then
  call('HDEL', Key.pod(pod), 'drained_at')
end
local _, load = settle(pod)
event('pod_draining', 'pod', pod, 'calls', load, 'until', digits(deadline), unpack(ARGV, 5))
return { 'ok', load, deadline }
