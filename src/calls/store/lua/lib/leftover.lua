--#include pods
-- Removes a call from the set of a pod that no longer has it (its record was deleted and the call was allocated again), and
-- nothing else of that call. Returns true, or false and the pod that the record names.
local function drop_leftover(sid, pod, pool)
  local record, owner = read_or_nil('HMGET', Key.call(sid), 'pod_name'), pod
  -- With a record of a wrong type, the call belongs to this pod until its lease ends.
  if record then owner = record[1] end
  if not owner or owner == pod then return false, owner end
  call('ZREM', Key.pod_calls(pod), sid)
  if pool and home_of(owner) ~= pool then
    write_or_skip('ZREM', Key.pool_calls(pool), sid)
  end
  return true
end
