--#include pods
-- What is derived from a pod's truth: the lease mirror, the status, the place in the available set.

-- Points the lease mirror at the latest live call, or deletes it. Returns that call, or ''.
local function mirror_lease(pod, load, lease)
  if load == 0 then
    if lease then call('DEL', Key.lease(pod)) end
    return ''
  end
  if lease and call('ZSCORE', Key.pod_calls(pod), lease) then return lease end
  local latest = call('ZRANGE', Key.pod_calls(pod), -1, -1, 'WITHSCORES')
  call('SET', Key.lease(pod), latest[1], 'PX', digits(math.max(1, latest[2] - now)))
  return latest[1]
end

local function status_of(load, block)
  if block then return 'draining' end
  return load > 0 and 'allocated' or 'available'
end

-- Derives everything from a pod's truth and writes only what differs. Returns the result of `place`, the load, the block,
-- the pool and the status before.
local function settle(pod)
  local pool, block, lease = read_pod(pod)
  local load = load_of(pod)
  local moved = 0
  if pool then moved, load = place(pod, pool, kind_of(pool), load, block) end
  local named = mirror_lease(pod, load, lease)
  local shown
  if pool then
    local status = status_of(load, block)
    shown = call('HMGET', Key.pod(pod), 'status', 'allocated_call_sid')
    if shown[1] ~= status then call('HSET', Key.pod(pod), 'status', status) end
    if (shown[2] or '') ~= '' and not call('ZSCORE', Key.pod_calls(pod), shown[2]) then
      call('HSET', Key.pod(pod), 'allocated_call_sid', named)
    end
  end
  return moved, load, block, pool, shown and shown[1]
end
