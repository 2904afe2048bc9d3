-- Stops new calls on a pod at once; live calls continue.
-- ARGV: 2 pod, 3 TTL of the mark ms, 4 uid ('' = not given), 5.. 'by' and the actor, if known
-- Result: {'ok', live calls, deadline} | {'pod_not_found'} | {'pod_replaced'}
-- Guarantee: never shortens the mark, so that it lasts as long as a caller waits. A drain with another uid than the
-- registered one changes nothing; without a registered uid every drain is accepted.
--#include base maxmemory settle iso
local pod, uid = ARGV[2], ARGV[4] or ''
if call('EXISTS', Key.pod_tier(pod)) == 0 then return { 'pod_not_found' } end
local known = uid ~= '' and call('HGET', Key.pod(pod), 'uid')
if known and known ~= '' and known ~= uid then return { 'pod_replaced' } end
allow_at_maxmemory()
local key = Key.pod_draining(pod)
local before = text_at(key)
local deadline = math.max(now + tonumber(ARGV[3]), before and deadline_of(before) or 0)
call('SET', key, digits(deadline), 'PX', digits(deadline - now))
write_or_skip('ZADD', Key.drains, digits(deadline), pod)
-- If the pod turns out to be replaced: without a uid the time decides whose drain it is, with one it is the registered pod's.
if uid == '' then
  call('HSET', Key.pod(pod), 'drained_at', iso(now))
elseif not before then
  call('HDEL', Key.pod(pod), 'drained_at')
end
local _, load = settle(pod)
event('pod_draining', 'pod', pod, 'calls', load, 'until', digits(deadline), unpack(ARGV, 5))
return { 'ok', load, deadline }
