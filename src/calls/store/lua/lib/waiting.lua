--#include queues
-- Calls that enter the queue or ask again (allocate.lua). `hold` has the rules that apply to the call, as JSON: {queue, priority,
-- weight, max_wait, max (of the queue), all (of all queues), claim, seen (ms without a request after which it counts as
-- abandoned), held (the caller was told to wait before)}.

-- The place of a waiting call among the calls of its queue, from 1.
local function describe_wait(sid, queue)
  local known = call('HMGET', Key.call(sid), 'waiting_since', 'wait_until')
  local rank = read_or_nil('ZRANK', Key.waiting_calls(queue), sid) or 0
  return { 'waiting', rank + 1, known[1], known[2], now }
end

-- Queues a call of an allocate that found no pod, or refuses it. `saw`: why it found none, for operators.
local function enter_or_refuse(sid, chain, fence, is_limited, saw)
  local merchant, route, record_ttl, grace, rules = ARGV[3], ARGV[4], ARGV[6], ARGV[7], ARGV[11]
  local pools = table.concat(chain, ' ')
  local function refuse(code)
    if call('HGET', Key.call(sid), 'hold') then end_wait_of(sid, 'wait_abandoned', 'asked without waiting') end
    local other_code = code == 'no_pods' and {} or { 'code', code }
    note('no_pods', 'call', sid, 'merchant', merchant, 'chain', pools, 'saw', saw, unpack(other_code))
    return { code, now }
  end
  if rules == '' then return refuse(is_limited and 'merchant_limit' or 'no_pods') end
  local hold = cjson.decode(rules)
  if hold.held and ended_lately({ sid }, grace)[sid] then return refuse('wait_over') end
  -- A router that does not know the limit yet names the shared queue.
  local queue = is_limited and merchant or hold.queue
  local count = read_or_nil('ZCARD', Key.waiting_calls(queue)) or 0
  if count >= hold.max or (read_or_nil('ZCARD', Key.waiting_due) or 0) >= hold.all then return refuse('queue_full') end
  call('HSET', Key.call(sid), 'hold', 'waiting', 'queue', queue, 'merchant_id', merchant, 'route', route, 'saw', saw,
    'waiting_since', digits(now), 'wait_until', digits(now + hold.max_wait), 'claim_ms', hold.claim, 'grace_ms', grace)
  -- serve_waiting ends the wait. Records that expired before it ran would stay in the queue, and fill it. A call that gets a
  -- pod at the end of its wait keeps it for `claim`.
  call('PEXPIRE', Key.call(sid), digits(hold.max_wait + math.max(record_ttl, hold.claim)))
  call('ZADD', Key.waiting_calls(queue), fence, sid)
  call('ZADD', Key.waiting_due, digits(now + math.min(hold.max_wait, hold.seen)), sid)
  if count == 0 then
    call('HSET', Key.waiting_queue(queue), 'chain', pools, 'priority', hold.priority, 'weight', hold.weight)
    call('PERSIST', Key.waiting_queue(queue))
    call('SADD', Key.waiting_queues, queue)
    list_queue(queue, true)
  end
  note('call_waiting', 'call', sid, 'merchant', merchant, 'chain', pools, 'position', count + 1, 'saw', saw)
  return describe_wait(sid, queue)
end

-- A waiting call keeps its place while it asks.
local function ask_again(sid, hold)
  local known = call('HMGET', Key.call(sid), 'queue', 'wait_until')
  local queue, till = known[1] or '', tonumber(known[2] or '') or 0
  if till <= now then
    end_wait_of(sid, 'wait_expired', 'max_wait')
    return { 'wait_expired', now }
  end
  call('ZADD', Key.waiting_due, digits(math.min(till, now + hold.seen)), sid)
  return describe_wait(sid, queue)
end
