-- Takes over a batch of live calls that an earlier router left in the call records and lease keys.
-- ARGV: 2 lease ms, 3 record ttl ms, 4 the shared pools as a JSON list, 5.. SIDs
-- Result: the number imported
-- Guarantee: a call that is known already stays as it is, so that it may run twice. A record without its
-- lease, on a pod whose lease names another call, is not live: what it was on has moved on.
--#include base
--#include counter
--#include calls
--#include pods
local lease, imported = tonumber(ARGV[2]), 0
local shared = {}
for _, pool in ipairs(cjson.decode(ARGV[4])) do shared[pool] = true end
for i = 5, #ARGV do
  local sid = ARGV[i]
  local pod = call('TYPE', call_key(sid)).ok == 'hash' and call('HGET', call_key(sid), 'pod_name')
  if pod and pod ~= '' and not call('ZSCORE', pod_calls_key(pod), sid) then
    local pool, _, holder = read_pod(pod)
    if holder == sid or (holder and shared[pool]) then
      local left = holder == sid and call('PTTL', P .. 'lease:' .. pod) or lease
      if left < 0 then left = lease end
      call('HSETNX', call_key(sid), 'fence', next_count(P .. 'fence'))
      move_lease(sid, pod, pool, now + left, tonumber(ARGV[3]))
      event('call_imported', 'call', sid, 'pod', pod, 'pool', pool or '')
      imported = imported + 1
    end
  end
end
return imported
