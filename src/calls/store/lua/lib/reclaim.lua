--#include calls
--#include settle
--#include unreadable
--#include leftover
-- Ends the calls of one pod that have lost their owner: past their lease, or their record was deleted.
-- An entry whose record names another pod is a leftover and goes alone; the living are in the pool's index
-- afterwards. With `most`, looks only at that many, those that expire first. Returns the number ended.
local function end_expired(pod, pool, grace, reason, most)
  local ended = 0
  local entries = call('ZRANGE', Key.pod_calls(pod), 0, (most or 0) - 1, 'WITHSCORES')
  for i = 1, #entries, 2 do
    local sid = entries[i]
    local leftover, owner = drop_leftover(sid, pod, pool)
    if not leftover and (not owner or tonumber(entries[i + 1]) <= now) then
      local words = last_words(sid)
      end_call(sid, pod, pool, grace)
      ended = ended + 1
      event('call_recovered', 'call', sid, 'pod', pod, 'pool', pool or '',
        'reason', owner and reason or 'record deleted', unpack(words))
    elseif not leftover and pool then
      write_or_skip('ZADD', Key.pool_calls(pool), entries[i + 1], sid)
    end
  end
  return ended
end

-- Ends what has expired on the pod of one call of a pool's index, and repairs the index where the two differ. At most 50 of
-- its calls in one step: a pod may have 10,000, which would hold up the store for 200 ms and the allocate with it.
local function reclaim(sid, pool, grace)
  local record = read_or_nil('HMGET', Key.call(sid), 'pod_name')
  local pod = record and record[1]
  -- Of what cannot be read nothing is ended here, and it does not stand in front of the others for ever.
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
