-- Removes pods for good.
-- ARGV: 2 epoch, 3 tombstone ms, 4 reason, 5.. pods
-- Result: {'ok', {pod, 1 if it was known, lost sid, ...}...} | {'stale_epoch'}
-- Guarantee: each pod goes with all its traces in this one step; a second remove changes nothing. A key of a wrong type
-- stays for the operator; calls in it that cannot be read end with their leases.
--#include base
--#include epoch
--#include removal
if is_stale(tonumber(ARGV[2])) then return { 'stale_epoch' } end
local results = { 'ok' }
for i = 5, #ARGV do
  local known = call('EXISTS', Key.pod_tier(ARGV[i]))
  local lost = forget(ARGV[i], ARGV[3], ARGV[4])
  table.insert(lost, 1, ARGV[i])
  table.insert(lost, 2, known)
  table.insert(results, lost)
end
return results
