--#include pods
-- An entry of a pod whose call lives on another pod by now (its record was deleted and the call came again): it
-- goes alone, and takes nothing of that call with it. True if it was one; else false and the record's pod, if any.
local function drop_leftover(sid, pod, pool)
  local record, owner = read_or_nil('HMGET', Key.call(sid), 'pod_name'), pod
  -- A record of another type says nothing: the call is that pod's until its lease ends.
  if record then owner = record[1] end
  if not owner or owner == pod then return false, owner end
  call('ZREM', Key.pod_calls(pod), sid)
  if pool and home_of(owner) ~= pool then
    write_or_skip('ZREM', Key.pool_calls(pool), sid)
  end
  return true
end
