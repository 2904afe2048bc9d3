--#include calls settle unreadable leftover outage
-- Ends calls that lost their owner.

-- Ends the calls of one pod that are past their lease or whose record was deleted, drops leftovers, and adds the live calls to
-- the pool's index. With `max`, looks only at that many, those that expire first. Returns the number of calls ended.
local function end_expired(pod, pool, grace, reason, max)
  local ended = 0
  local entries = call('ZRANGE', Key.pod_calls(pod), 0, (max or 0) - 1, 'WITHSCORES')
  for i = 1, #entries, 2 do
    local sid = entries[i]
    local leftover, owner = drop_leftover(sid, pod, pool)
    if not leftover and (not owner or tonumber(entries[i + 1]) <= leases_end()) then
      local fields = age_fields(sid)
      end_call(sid, pod, pool, grace)
      ended = ended + 1
      event('call_recovered', 'call', sid, 'pod', pod, 'pool', pool or '',
        'reason', owner and reason or 'record deleted', unpack(fields))
    elseif not leftover and pool then
      write_or_skip('ZADD', Key.pool_calls(pool), entries[i + 1], sid)
    end
  end
  return ended
end

-- Ends the expired calls of the pod that has one call of a pool's index, and repairs the index where the two differ. At most
-- 50 calls in one step: a pod may have 10,000, which would block the store, and the allocate, for 200 ms.
local function reclaim(sid, pool, grace)
  local record = read_or_nil('HMGET', Key.call(sid), 'pod_name')
  local pod = record and record[1]
  -- The call of an unreadable pod leaves the index without ending, or it would stay first in the index.
  if pod and (home_of(pod) ~= pool or set_aside(pod)) then pod = nil end
  local ended = 0
  if pod then
    ended = end_expired(pod, pool, grace, 'lease expired', 50)
    settle(pod)
  end
  local left = pod and call('ZSCORE', Key.pod_calls(pod), sid)
  if left then
    write_or_skip('ZADD', Key.pool_calls(pool), left, sid)
  else
    write_or_skip('ZREM', Key.pool_calls(pool), sid)
  end
  return ended
end
