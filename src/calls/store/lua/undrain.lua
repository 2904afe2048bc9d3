-- Ends a drain.
-- ARGV: 2 pod, 3 refuse after (store ms, '' = never), so that a request whose caller gave up does not end a later drain,
--       4 uid ('' = not given), 5.. 'by' and the actor, if known
-- Result: {'ok', live calls, why it still takes no calls ('' = it does)} | {'pod_not_found'} | {'pod_replaced'}
--         {'late', now}
-- Guarantee: an undrain with another uid than the registered one changes nothing.
--#include base settle
local pod, uid = ARGV[2], ARGV[4] or ''
if ARGV[3] ~= '' and now > tonumber(ARGV[3]) then return { 'late', now } end
if call('EXISTS', Key.pod_tier(pod)) == 0 then return { 'pod_not_found' } end
local known = uid ~= '' and call('HGET', Key.pod(pod), 'uid')
if known and known ~= '' and known ~= uid then return { 'pod_replaced' } end
local was = call('DEL', Key.pod_draining(pod))
write_or_skip('ZREM', Key.drains, pod)
local _, load, block = settle(pod)
if was == 1 then event('pod_undrained', 'pod', pod, 'calls', load, unpack(ARGV, 5)) end
return { 'ok', load, block or '' }
