--#include pools
-- An entry of a pod whose call lives on another pod by now (its record was deleted and the call came again): it
-- goes alone, and takes nothing of that call with it. True if it was one; else false and the record's pod, if any.
local function drop_leftover(sid, pod, pool)
  local owner = call('HGET', call_key(sid), 'pod_name')
  if not owner or owner == pod then return false, owner end
  call('ZREM', pod_calls_key(pod), sid)
  if pool and pool_of(call('GET', P .. 'pod:tier:' .. owner)) ~= pool then
    call('ZREM', pool_calls_key(pool), sid)
  end
  return true
end
