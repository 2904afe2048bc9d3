-- Suspends pods: takes them out of `available` and keeps their calls, until they are registered again or removed.
-- ARGV: 2 epoch, 3 reason ('terminating' | 'not_ready' | 'unconfirmed'), 4.. pods
-- Result: {'ok', live calls of each pod, or -1 for an unregistered or unreadable one} | {'stale_epoch'}
--#include base epoch settle unreadable
if is_stale(tonumber(ARGV[2])) then return { 'stale_epoch' } end
local results = { 'ok' }
for i = 4, #ARGV do
  local pod, load = ARGV[i], -1
  if call('EXISTS', Key.pod_tier(pod)) == 1 then
    local before = text_at(Key.pod_suspended(pod))
    if before ~= ARGV[3] then call('SET', Key.pod_suspended(pod), ARGV[3]) end
    if ARGV[3] == 'unconfirmed' then write_or_skip('SADD', Key.removals_held, pod) end
    local _
    if not set_aside(pod) then _, load = settle(pod) end
    if before ~= ARGV[3] then event('pod_suspended', 'pod', pod, 'calls', math.max(0, load), 'reason', ARGV[3]) end
  end
  table.insert(results, load)
end
return results
