-- Removes pods.
-- ARGV: 2 epoch, 3 tombstone TTL ms, 4 reason, 5.. pods
-- Result: {'ok', {pod, 1 = it was registered, lost sid...}...} | {'stale_epoch'}
-- Guarantee: deletes all keys of a pod in one step; a second remove changes nothing. A key of a wrong type stays for the
-- operator; the calls of an unreadable set end with their leases.
--#include base epoch removal
if is_stale(tonumber(ARGV[2])) then return { 'stale_epoch' } end
local results = { 'ok' }
for i = 5, #ARGV do
  local known = call('EXISTS', Key.pod_tier(ARGV[i]))
  local lost = forget(ARGV[i], ARGV[3], ARGV[4])
  table.insert(lost, 1, ARGV[i])
  table.insert(lost, 2, known)
  table.insert(results, lost)
end
serve_freed()
return results
