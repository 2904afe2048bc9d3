--#include base calls pods counter
-- Answers an allocate of a call that has a pod. `hold`: the pod was handed over to it while it waited: its caller picks it up
-- now, and its lease and its fence begin. Otherwise the request is a repeated one and never shortens the lease.
local function renew_existing(sid, pod, hold, held, lease, info_ttl)
  local key, deadline = Key.call(sid), now + lease
  if not hold then deadline = math.max(deadline, tonumber(held)) end
  move_lease(sid, pod, (read_pod(pod)), deadline, info_ttl)
  if hold then
    call('HDEL', key, 'hold', 'missing_since')
    call('HSET', key, 'fence', next_count(Key.fence))
  else
    call('HSET', key, 'asked_again', 1)
  end
  call('SET', Key.lease(pod), sid, 'PX', digits(deadline - now))
  local record = call('HMGET', key, 'source_pool', 'allocated_at', 'fence', 'waited_ms')
  return table.concat({ 'ok', pod, record[1] or '', record[2] or '', digits(deadline), record[3] or '', hold and '0' or '1', '0',
    us, record[4] or '' }, '\n')
end
