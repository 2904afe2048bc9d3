--#include iso calls pods leftover silence
-- Moves pods out of pools and deletes them.

-- Takes a pod out of its pool: its calls stay on it and leave the pool's index.
local function leave(pod, pool)
  write_or_skip('SREM', Key.assigned(pool), pod)
  local key = available_key(pool)
  write_or_skip(call('TYPE', key).ok == 'zset' and 'ZREM' or 'SREM', key, pod)
  for _, sid in ipairs(read_or_nil('ZRANGE', Key.pod_calls(pod), 0, -1) or {}) do
    if not drop_leftover(sid, pod, pool) then write_or_skip('ZREM', Key.pool_calls(pool), sid) end
  end
  local kind = read_or_nil('HGET', Key.pools, pool)
  if (kind == 'gone' or kind == 'label') and call('EXISTS', Key.assigned(pool), Key.pool_calls(pool)) == 0 then
    call('HDEL', Key.pools, pool)
  end
end

-- Removes a pod from those that the removal brake holds, and from those whose removal an operator confirmed.
local function release_hold(pod)
  write_or_skip('SREM', Key.removals_held, pod)
  write_or_skip('SREM', Key.removals_confirmed, pod)
end

-- True while a pod is set back because calls fail on it (lib/flapping.lua).
local function cools_off(pod)
  return read_or_nil('ZSCORE', Key.flapping, pod)
end

-- A call that waited begins when its caller picks up the pod: its fence has that time.
local function begins(allocated_at, waited, fence)
  local picked_up = waited and iso(math.floor((tonumber(fence) or 0) / 1000)) or ''
  return picked_up > allocated_at and picked_up or allocated_at
end

-- Ends a pod's calls, with `before` only those that began before that time. Returns their SIDs.
local function lose_calls(pod, pool, grace, reason, before)
  local lost = {}
  for _, sid in ipairs(read_or_nil('ZRANGE', Key.pod_calls(pod), 0, -1) or {}) do
    local known = read_or_nil('HMGET', Key.call(sid), 'source_pool', 'allocated_at', 'waited_ms', 'fence') or {}
    if (not before or begins(known[2] or '', known[3], known[4]) < before) and not drop_leftover(sid, pod, pool) then
      table.insert(lost, sid)
      local fields = age_fields(sid)
      end_call(sid, pod, pool or known[1], grace)
      event('call_lost', 'call', sid, 'pod', pod, 'pool', pool or '', 'reason', reason, unpack(fields))
    end
  end
  return lost
end

-- Ends a pod's calls and deletes all its keys except those of a wrong type, which an operator renames. With `since`, later
-- calls and a later drain belong to the next pod of the same name: it stays in the pool with them. Returns the SIDs of the
-- lost calls, and that pool.
local function forget(pod, grace, reason, since)
  local pool = home_of(pod)
  since = pool and since
  local drained_at = since and call('EXISTS', Key.pod_draining(pod)) == 1
    and read_or_nil('HGET', Key.pod(pod), 'drained_at')
  local lost = lose_calls(pod, pool, grace, reason, since)
  call('DEL', Key.pod_suspended(pod))
  if read_or_nil('HLEN', Key.pod(pod)) then call('DEL', Key.pod(pod)) end
  if drained_at and drained_at >= since then
    call('HSET', Key.pod(pod), 'drained_at', drained_at)
  else
    call('DEL', Key.pod_draining(pod))
    write_or_skip('ZREM', Key.drains, pod)
  end
  write_or_skip('HDEL', Key.pod_metadata, pod)
  write_or_skip('ZREM', Key.reported, pod)
  forget_silence(pod)
  redis.pcall('ZREM', Key.flapping, pod)
  release_hold(pod)
  if since and load_of(pod) > 0 then return lost, pool end
  if pool then leave(pod, pool) end
  call('DEL', Key.pod_tier(pod), Key.lease(pod))
  if read_or_nil('ZCARD', Key.pod_calls(pod)) then call('DEL', Key.pod_calls(pod)) end
  if pool then event('pod_removed', 'pod', pod, 'pool', pool, 'lost', #lost, 'reason', reason) end
  return lost
end
