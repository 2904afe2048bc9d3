-- Ends waits that expired or were abandoned, and hands over pods of waiting calls that no other step handed over: calls past
-- their lease, drains that ended, changed rules. Every replica runs it once a second: Redis has no trigger for time.
-- ARGV: 2 tombstone TTL ms, 3 batch size, 4.. pairs of a queue and its rules as JSON {chain, priority, weight}, where they
--       have changed
-- Result: {waits expired, waits abandoned, calls recovered, calls waiting, since when the oldest one of the queues below
--         waits (ms, '' = none), now, {queue, chain, priority, weight, calls}... of some of the queues, at most 100}
--#include base counter reclaim serve limits
local grace, batch = ARGV[2], tonumber(ARGV[3])
local expired, abandoned, ended, oldest = 0, 0, 0, ''
if call('EXISTS', Key.waiting_due, Key.waiting_queues) == 0 then return { 0, 0, 0, 0, '', now } end
next_count(Key.fence) -- the first write: at maxmemory Redis refuses it before anything has changed
for _, sid in ipairs(read_or_nil('ZRANGEBYSCORE', Key.waiting_due, '-inf', digits(now), 'LIMIT', 0, batch) or {}) do
  local known = read_or_nil('HMGET', Key.call(sid), 'hold', 'wait_until') or {}
  if known[1] ~= 'waiting' then
    call('ZREM', Key.waiting_due, sid)
  elseif (tonumber(known[2] or '') or 0) <= now then
    end_wait_of(sid, 'wait_expired', 'max_wait')
    expired = expired + 1
  elseif leases_end() < now then -- its caller could not ask
    call('ZADD', Key.waiting_due, digits(math.min(tonumber(known[2]), now + GRACE_MS)), sid)
  else
    end_wait_of(sid, 'wait_abandoned', 'not asked for')
    abandoned = abandoned + 1
  end
end
for _, pod in ipairs(read_or_nil('ZRANGEBYSCORE', Key.drains, '-inf', digits(now), 'LIMIT', 0, batch) or {}) do
  call('ZREM', Key.drains, pod)
  if home_of(pod) and not set_aside(pod) then settle(pod) end
end
for i = 4, #ARGV, 2 do
  local queue, rules = ARGV[i], cjson.decode(ARGV[i + 1])
  unlist_queue(queue, (queue_rules(queue)))
  call('HSET', Key.waiting_queue(queue), 'chain', rules.chain, 'priority', rules.priority, 'weight', rules.weight)
  list_queue(queue, true)
end
local result, looked, queues = {}, {}, read_or_nil('SRANDMEMBER', Key.waiting_queues, 100) or {}
table.sort(queues)
for _, queue in ipairs(queues) do
  local limit = limit_of(queue)
  if is_at_limit(queue, limit) then has_room(queue, tonumber(limit), grace) end
  list_queue(queue)
  local chain, priority, weight = queue_rules(queue)
  for pool in string.gmatch(chain, '%S+') do
    if not looked[pool] then
      looked[pool] = true
      local over = digits(leases_end())
      for _, sid in ipairs(read_or_nil('ZRANGEBYSCORE', Key.pool_calls(pool), '-inf', over, 'LIMIT', 0, batch) or {}) do
        ended = ended + reclaim(sid, pool, grace)
      end
      serve_pool(pool)
    end
  end
  local first = (read_or_nil('ZRANGE', Key.waiting_calls(queue), 0, 0) or {})[1]
  local since = first and (read_or_nil('HMGET', Key.call(first), 'waiting_since') or {})[1]
  if since and (oldest == '' or tonumber(since) < tonumber(oldest)) then oldest = since end
  table.insert(result, { queue, chain, priority, weight, read_or_nil('ZCARD', Key.waiting_calls(queue)) or 0 })
end
serve_freed()
return { expired, abandoned, ended, read_or_nil('ZCARD', Key.waiting_due) or 0, oldest, now, unpack(result) }
