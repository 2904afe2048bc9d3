-- One pod.
-- ARGV: 2 pod
-- Result: {'ok', describe's row} | {'pod_not_found'}
--#include base
--#include describe
if call('EXISTS', Key.pod_tier(ARGV[2])) == 0 then return { 'pod_not_found' } end
return { 'ok', describe(ARGV[2]) }
