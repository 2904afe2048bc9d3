-- Ends a drain now.
-- ARGV: 2 pod
-- Result: {'ok', live calls, why it still takes no calls ('' = it does)} | {'pod_not_found'}
--#include base
--#include settle
local pod = ARGV[2]
if call('EXISTS', P .. 'pod:tier:' .. pod) == 0 then return { 'pod_not_found' } end
local was = call('DEL', P .. 'pod:draining:' .. pod)
local _, load, block = settle(pod)
if was == 1 then event('pod_undrained', 'pod', pod, 'calls', load) end
return { 'ok', load, block or '' }
