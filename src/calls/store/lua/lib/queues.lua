--#include tombstones
-- The order of waiting calls. Every merchant with a configuration has a queue; all others share the queue ''. A queue has its
-- calls by arrival. `{pool}:waiting` lists the queues that may have a pod of that pool: higher priority first, then by finish
-- tag (weighted fair queueing): the start tag plus 1000/weight. Each call served moves the start tag of its queue there. By
-- start tags a merchant of weight 60 would wait for one call of each other merchant: four of five pods less than its share.
-- A queue is listed exactly if it has calls and its merchant is below its limit, so the first one listed is always the next to
-- serve: a release costs the same with 10 or with 10,000 waiting calls.
-- A score is (9 - priority) * 2^42 + tag: tags reach 2^42 after four billion calls without a time when none waits.
local PRIORITY_SPAN, CALL_COST = 2 ^ 42, 1000

-- Returns the chain as text, the priority, the weight and the tag as text.
local function queue_rules(queue)
  local known = read_or_nil('HMGET', Key.waiting_queue(queue), 'chain', 'priority', 'weight', 'tag') or {}
  return known[1] or '', tonumber(known[2] or '') or 0, tonumber(known[3] or '') or 1,
    tonumber(known[4] or '') and known[4] or '0'
end

local function limit_of(merchant)
  return merchant ~= '' and read_or_nil('HGET', Key.limits, merchant)
end

local function is_at_limit(merchant, max)
  return max and (read_or_nil('SCARD', Key.limited(merchant)) or 0) >= (tonumber(max) or math.huge)
end

local function unlist_queue(queue, chain)
  for pool in string.gmatch(chain, '%S+') do write_or_skip('ZREM', Key.waiting(pool), queue) end
end

-- The highest start tags served so far in the pools of a chain, by priority: their fields in `waiting:tags`, and the tags.
local function served_tags(chain, priority)
  local fields = {}
  for pool in string.gmatch(chain, '%S+') do table.insert(fields, pool .. ' ' .. priority) end
  return fields, fields[1] and read_or_nil('HMGET', Key.waiting_tags, unpack(fields)) or {}
end

local function note_served(chain, priority, tag)
  local fields, tags = served_tags(chain, priority)
  local row, start = {}, tonumber(tag)
  for i, served in ipairs(tags) do
    row[2 * i - 1], row[2 * i] = fields[i], (tonumber(served or '') or 0) > start and served or tag
  end
  if row[1] then write_or_skip('HSET', Key.waiting_tags, unpack(row)) end
end

-- The start tag of a queue that enters the lists: not below the tags served in its pools, so that an idle time gives no credit,
-- and not above them by more than one call, so that services in other pools are not held against it.
local function first_tag(chain, priority, tag, cost)
  local least
  for _, served in ipairs((select(2, served_tags(chain, priority)))) do
    if tonumber(served or '') then least = math.min(least or math.huge, served) end
  end
  return math.min(math.max(tag, least or 0), (least or 0) + cost)
end

-- Brings the lists up to date with a queue. `enters`: it was in no list, or its rules have changed. `left`: given after one of
-- its calls got a pod: 0 if no other call waits.
local function list_queue(queue, enters, left)
  local chain, priority, weight, tag = queue_rules(queue)
  if left then
    note_served(chain, priority, tag)
    tag = tag + CALL_COST / weight
    call('HSET', Key.waiting_queue(queue), 'tag', string.format('%.6f', tag))
  end
  if (left or read_or_nil('ZCARD', Key.waiting_calls(queue)) or 0) == 0 then
    unlist_queue(queue, chain)
    write_or_skip('SREM', Key.waiting_queues, queue)
    if call('EXISTS', Key.waiting_queues) == 0 then call('DEL', Key.waiting_tags) end
    -- The tag outlasts a short time without calls: a merchant that always has one call waiting must not be served first.
    call('PEXPIRE', Key.waiting_queue(queue), 60000)
    return
  end
  if is_at_limit(queue, limit_of(queue)) then return unlist_queue(queue, chain) end
  local cost = CALL_COST / weight
  if enters then
    tag = first_tag(chain, priority, tag, cost)
    call('HSET', Key.waiting_queue(queue), 'tag', string.format('%.6f', tag))
  end
  local score = string.format('%.6f', (9 - priority) * PRIORITY_SPAN + tag + cost)
  for pool in string.gmatch(chain, '%S+') do write_or_skip('ZADD', Key.waiting(pool), score, queue) end
end

local function dequeue(sid, queue)
  write_or_skip('ZREM', Key.waiting_calls(queue), sid)
  write_or_skip('ZREM', Key.waiting_due, sid)
end

-- Ends the wait of a call without a pod. `kind`: 'wait_expired' | 'wait_abandoned'. Returns how long it has waited in ms.
local function end_wait_of(sid, kind, reason)
  local known = read_or_nil('HMGET', Key.call(sid), 'queue', 'merchant_id', 'waiting_since', 'grace_ms') or {}
  local queue, waited = known[1] or '', math.max(0, now - (tonumber(known[3] or '') or now))
  dequeue(sid, queue)
  list_queue(queue)
  call('DEL', Key.call(sid))
  leave_tombstone(sid, known[4] or 30000)
  note(kind, 'call', sid, 'merchant', known[2] or '', 'reason', reason, 'waited_ms', digits(waited))
  return waited
end
