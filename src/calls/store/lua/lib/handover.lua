--#include queues counter iso
-- Gives a pod that became free to the calls that wait for it, in the same step.

-- The assigned call is an ordinary call with a short lease; its next allocate picks it up and sets the normal one.
-- Its record outlives that lease (lib/waiting.lua). `known`: the fields of the record that hand_over reads. `left`: 1 if other
-- calls wait in the queue, else 0. The rest are further fields of the pod's hash. The lease mirror of a shared pod names this call.
local function assign(sid, queue, pod, pool, known, fence, left, ...)
  local merchant, at, claim = known[4] or '', iso(now), string.match(known[7] or '', '^[1-9]%d*$') or '20000'
  local score, waited = digits(now + claim), digits(math.max(0, now - (tonumber(known[6] or '') or now)))
  call('ZADD', Key.pod_calls(pod), score, sid)
  write_or_skip('ZADD', Key.pool_calls(pool), score, sid)
  call('HSET', Key.call(sid), 'pod_name', pod, 'source_pool', pool, 'allocated_at', at, 'fence', fence, 'hold', 'assigned',
    'waited_ms', waited)
  call('SET', Key.lease(pod), sid, 'PX', claim)
  write_or_skip('HSET', Key.pod(pod), 'status', 'allocated', 'allocated_call_sid', sid, 'allocated_at', at,
    'source_pool', pool, ...)
  dequeue(sid, queue)
  list_queue(queue, false, left)
  note('call_assigned', 'call', sid, 'pod', pod, 'pool', pool, 'merchant', merchant, 'fence', fence, 'waited_ms', waited)
end

-- A merchant of the shared queue has got a limit since, and is at it: its call waits in the queue of the merchant now.
local function move_call(sid, queue, merchant)
  local arrival, chain = call('ZSCORE', Key.waiting_calls(queue), sid), queue_rules(queue)
  call('ZREM', Key.waiting_calls(queue), sid)
  list_queue(queue)
  call('HSET', Key.call(sid), 'queue', merchant)
  call('ZADD', Key.waiting_calls(merchant), arrival, sid)
  if not call('HGET', Key.waiting_queue(merchant), 'chain') then call('HSET', Key.waiting_queue(merchant), 'chain', chain) end
  call('PERSIST', Key.waiting_queue(merchant))
  call('SADD', Key.waiting_queues, merchant)
end

-- Assigns waiting calls to an unblocked pod until it has `max` calls. Returns its load. Entries without a waiting call are
-- dropped: one step looks at no more than 1,000. `fence`: of the first call, if the caller has one. The rest is for assign.
local function hand_over(pod, pool, max, load, fence, ...)
  for _ = 1, 1000 do
    local queue = load < max and (read_or_nil('ZRANGE', Key.waiting(pool), 0, 0) or {})[1]
    if not queue then break end
    local first = read_or_nil('ZRANGE', Key.waiting_calls(queue), 0, 1) or {}
    local sid = first[1]
    local known = sid and read_or_nil('HMGET', Key.call(sid), 'hold', 'queue', 'wait_until', 'merchant_id', 'pod_name',
      'waiting_since', 'claim_ms') or {}
    if not sid then
      list_queue(queue)
      write_or_skip('ZREM', Key.waiting(pool), queue) -- also if the pool is not in its chain
    elseif known[1] ~= 'waiting' or known[2] ~= queue or known[5] then -- version 0.1 gives a waiting call a pod, and leaves it queued
      write_or_skip('ZREM', Key.waiting_calls(queue), sid)
      if known[5] then write_or_skip('ZREM', Key.waiting_due, sid) end
      list_queue(queue)
    elseif (tonumber(known[3] or '') or 0) <= now then
      end_wait_of(sid, 'wait_expired', 'max_wait')
    else
      local merchant = known[4] or ''
      local limit = limit_of(merchant)
      if queue == '' and is_at_limit(merchant, limit) then
        move_call(sid, queue, merchant)
      else
        if limit then
          write_or_skip('SADD', Key.limited(merchant), sid)
          call('HSET', Key.call(sid), 'limited', merchant)
          if merchant ~= queue then list_queue(merchant) end
        end
        assign(sid, queue, pod, pool, known, fence or next_count(Key.fence), #first - 1, ...)
        load, fence = load + 1, nil
      end
    end
  end
  return load
end
