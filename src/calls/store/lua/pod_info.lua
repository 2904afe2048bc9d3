-- Reads one pod.
-- ARGV: 2 pod
-- Result: {'ok', row of `describe`} | {'pod_not_found'}
--#include base describe
if call('EXISTS', Key.pod_tier(ARGV[2])) == 0 then return { 'pod_not_found' } end
return { 'ok', describe(ARGV[2]) }
