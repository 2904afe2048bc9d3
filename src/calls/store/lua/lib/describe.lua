--#include pods
-- A pod as operators see it: {name, pool, block, drain deadline, lease SID, uid, metadata, {sid, deadline...}, last report ms}
local function describe(pod)
  local pool, block, lease, draining = read_pod(pod)
  return { pod, pool or '', block or '', draining or '', lease or '',
    call('HGET', Key.pod(pod), 'uid') or '', read_or_nil('HGET', Key.pod_metadata, pod) or '',
    call('ZRANGE', Key.pod_calls(pod), 0, -1, 'WITHSCORES'), read_or_nil('ZSCORE', Key.reported, pod) or '' }
end
