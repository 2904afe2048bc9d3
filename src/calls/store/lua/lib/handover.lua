--#include queues counter iso
-- Gives a pod that became free to the calls that wait for it, in the same step.

-- The assigned call is an ordinary call with a short lease; its next allocate picks it up and sets the normal one.
-- `known`: the fields of its record that hand_over reads.
local function assign(sid, queue, pod, pool, known)
  local merchant, claim = known[4] or '', tonumber(known[7] or '') or 20000
  local fence, at = next_count(Key.fence), iso(now)
  local waited = digits(math.max(0, now - (tonumber(known[6] or '') or now)))
  call('ZADD', Key.pod_calls(pod), digits(now + claim), sid)
  write_or_skip('ZADD', Key.pool_calls(pool), digits(now + claim), sid)
  call('HSET', Key.call(sid), 'pod_name', pod, 'source_pool', pool, 'allocated_at', at, 'fence', fence, 'hold', 'assigned',
    'waited_ms', waited)
  call('PEXPIRE', Key.call(sid), digits(math.max(tonumber(known[8] or '') or 0, claim)))
  write_or_skip('HSET', Key.pod(pod), 'status', 'allocated', 'allocated_call_sid', sid, 'allocated_at', at,
    'source_pool', pool)
  if read_or_nil('HEXISTS', Key.limits, merchant) == 1 then
    call('SADD', Key.limited(merchant), sid)
    call('HSET', Key.call(sid), 'limited', merchant)
    if merchant ~= queue then list_queue(merchant) end
  end
  dequeue(sid, queue)
  list_queue(queue, false, true)
  note('call_assigned', 'call', sid, 'pod', pod, 'pool', pool, 'merchant', merchant, 'fence', fence, 'waited_ms', waited)
end

-- A merchant of the shared queue has got a limit since, and is at it: its call waits in the queue of the merchant now.
local function move_call(sid, queue, merchant)
  local arrival, chain = call('ZSCORE', Key.waiting_calls(queue), sid), queue_rules(queue)
  call('ZREM', Key.waiting_calls(queue), sid)
  list_queue(queue)
  call('HSET', Key.call(sid), 'queue', merchant)
  call('ZADD', Key.waiting_calls(merchant), arrival, sid)
  call('HSETNX', Key.waiting_queue(merchant), 'chain', chain)
  call('PERSIST', Key.waiting_queue(merchant))
  call('SADD', Key.waiting_queues, merchant)
end

-- Assigns waiting calls to an unblocked pod until it has `max` calls. Returns its load. Entries without a waiting call are
-- dropped: one step looks at no more than 1,000.
local function hand_over(pod, pool, max, load)
  for _ = 1, 1000 do
    local queue = load < max and (read_or_nil('ZRANGE', Key.waiting(pool), 0, 0) or {})[1]
    if not queue then break end
    local sid = (read_or_nil('ZRANGE', Key.waiting_calls(queue), 0, 0) or {})[1]
    local known = sid and read_or_nil('HMGET', Key.call(sid), 'hold', 'queue', 'wait_until', 'merchant_id', 'pod_name',
      'waiting_since', 'claim_ms', 'record_ms') or {}
    if not sid then
      list_queue(queue)
      write_or_skip('ZREM', Key.waiting(pool), queue) -- also if the pool is not in its chain
    elseif known[1] ~= 'waiting' or known[2] ~= queue or known[5] then -- version 0.1 gives a waiting call a pod, and leaves it queued
      write_or_skip('ZREM', Key.waiting_calls(queue), sid)
      if known[5] then write_or_skip('ZREM', Key.waiting_due, sid) end
      list_queue(queue)
    elseif (tonumber(known[3] or '') or 0) <= now then
      end_wait_of(sid, 'wait_expired', 'max_wait')
    elseif queue == '' and is_at_limit(known[4] or '') then
      move_call(sid, queue, known[4])
    else
      assign(sid, queue, pod, pool, known)
      load = load + 1
    end
  end
  return load
end
