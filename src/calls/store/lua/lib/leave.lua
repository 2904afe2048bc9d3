--#include calls
--#include pods
--#include leftover
-- Takes a pod out of its pool; its calls stay with it and leave the pool's index.
local function leave(pod, pool)
  call('SREM', P .. pool .. ':assigned', pod)
  local key = available_key(pool)
  call(call('TYPE', key).ok == 'zset' and 'ZREM' or 'SREM', key, pod)
  for _, sid in ipairs(call('ZRANGE', pod_calls_key(pod), 0, -1)) do
    if not drop_leftover(sid, pod, pool) then call('ZREM', pool_calls_key(pool), sid) end
  end
  local kind = call('HGET', P .. 'pools', pool)
  if (kind == 'gone' or kind == 'label') and call('EXISTS', P .. pool .. ':assigned', pool_calls_key(pool)) == 0 then
    call('HDEL', P .. 'pools', pool)
  end
end

-- Ends a pod's calls and deletes every trace of it. Returns the SIDs of the calls that were lost.
local function forget(pod, grace, reason)
  local pool = pool_of(call('GET', P .. 'pod:tier:' .. pod))
  local lost = {}
  for _, sid in ipairs(call('ZRANGE', pod_calls_key(pod), 0, -1)) do
    if not drop_leftover(sid, pod, pool) then
      table.insert(lost, sid)
      end_call(sid, pod, pool or call('HGET', call_key(sid), 'source_pool'), grace)
      event('call_lost', 'call', sid, 'pod', pod, 'pool', pool or '', 'reason', reason)
    end
  end
  if pool then leave(pod, pool) end
  call('DEL', P .. 'pod:tier:' .. pod, P .. 'pod:draining:' .. pod, P .. 'pod:suspended:' .. pod,
    P .. 'lease:' .. pod, P .. 'pod:' .. pod, pod_calls_key(pod))
  call('HDEL', P .. 'pod:metadata', pod)
  if pool then event('pod_removed', 'pod', pod, 'pool', pool, 'lost', #lost, 'reason', reason) end
  return lost
end
