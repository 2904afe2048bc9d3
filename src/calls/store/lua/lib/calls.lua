--#include tombstones
-- What is left of a call that has ended: nothing but a tombstone, so that a late report cannot bring it back.
local function end_call(sid, pod, pool, grace)
  call('ZREM', pod_calls_key(pod), sid)
  if pool then call('ZREM', pool_calls_key(pool), sid) end
  call('DEL', call_key(sid))
  leave_tombstone(sid, grace)
end

-- Moves a live call's lease; the call record outlives the lease by what the configuration checks.
local function move_lease(sid, pod, pool, deadline, info_ttl)
  local score = digits(deadline)
  call('ZADD', pod_calls_key(pod), score, sid)
  if pool then call('ZADD', pool_calls_key(pool), score, sid) end
  call('PEXPIRE', call_key(sid), digits(math.max(info_ttl, deadline - now)))
end
