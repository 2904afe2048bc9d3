-- Says what an allocate with the same arguments would do now, and what it sees. Writes nothing: allocate.lua itself runs, on an
-- overlay of the store (lib/overlay.lua).
-- ARGV: 2 sid ('' = a new call), 3 merchant, 11 rules for waiting, 12.. pool ids of the chain; the others as in allocate.lua
-- Result: {the result of allocate, what blocks the pod of that result ('' = nothing), 1 = the merchant is at its limit, that
--         limit ('' = none), its live calls, calls in its queue, calls that wait in all queues, calls of higher priority that
--         wait for pools of the chain,
--         {{'lease' | 'drain' | 'limit', pod, sid, time in ms}...} that would free a place next,
--         {pool, kind ('' = none), pods, pods looked at, state, pods in this state...}...}
-- Counts at most MAX_PODS pods: 500 take the store 4 ms. The pod of an exclusive pool is one of those that allocate may take.
--#include dry_run base queues handover serve limits shortage existing waiting next_place
local MAX_PODS = 500
local chain, left = { unpack(ARGV, 12) }, MAX_PODS
local kinds = #chain > 0 and call('HMGET', Key.pools, unpack(chain)) or {}
local kind_values, frees = {}, {}

-- Exactly one state per pod. Misplaced: allocate does not find it until the sweep has put it into `available`.
local function state_of(pod, pool, kind, max)
  local home, block = read_pod(pod)
  local load = read_or_nil('ZCARD', Key.pod_calls(pod))
  if not load then return 'unreadable' end
  if home ~= pool then return 'misplaced' end
  if block or load >= max then return block or 'busy' end
  local score = read_or_nil(kind == 'shared' and 'ZSCORE' or 'SISMEMBER', available_key(pool), pod)
  local is_listed = kind == 'shared' and score and tonumber(score) < max or kind == 'exclusive' and score == 1
  return is_listed and 'free' or 'misplaced'
end

-- The calls of queues with a higher priority that wait for a pool of the chain.
local function calls_ahead(priority)
  local counted, calls = {}, 0
  for _, pool in ipairs(chain) do
    local before = '(' .. digits((9 - priority) * PRIORITY_SPAN)
    for _, queue in ipairs(read_or_nil('ZRANGEBYSCORE', Key.waiting(pool), '-inf', before, 'LIMIT', 0, MAX_LOOKED_AT) or {}) do
      if not counted[queue] then calls = calls + (read_or_nil('ZCARD', Key.waiting_calls(queue)) or 0) end
      counted[queue] = true
    end
  end
  return calls
end

local steps = {}
for i, pool in ipairs(chain) do
  local value = kinds[i] or ''
  local kind, max = parse_kind(value)
  local looked, counts = kind and read_or_nil('SRANDMEMBER', Key.assigned(pool), left) or {}, {}
  left, kind_values[pool] = left - #looked, value
  for _, pod in ipairs(looked) do
    local state = state_of(pod, pool, kind, max)
    counts[state] = (counts[state] or 0) + 1
  end
  steps[i] = { pool, value, read_or_nil('SCARD', Key.assigned(pool)) or 0, #looked }
  for state, count in pairs(counts) do
    table.insert(steps[i], state)
    table.insert(steps[i], count)
  end
  if kind then frees[#frees + 1] = next_lease(pool, max) end
end
frees[#frees + 1] = next_drain(kind_values)
local limit = ARGV[3] ~= '' and read_or_nil('HGET', Key.limits, ARGV[3])
if limit then frees[#frees + 1] = next_of_limit(ARGV[3]) end
local hold = ARGV[11] ~= '' and cjson.decode(ARGV[11]) or { queue = '', priority = 0 }
local result = { limit or '', read_or_nil('SCARD', Key.limited(ARGV[3])) or 0,
  read_or_nil('ZCARD', Key.waiting_calls(hold.queue)) or 0, read_or_nil('ZCARD', Key.waiting_due) or 0,
  calls_ahead(hold.priority), frees, unpack(steps) }

local function allocate()
  --#include allocate
end
local answer = allocate()
local pod = type(answer) == 'string' and string.match(answer, '\n([^\n]*)')
local block = pod and select(2, read_pod(pod))
local is_limited = limit and not pod and is_at_limit(ARGV[3], limit) -- after expired calls have ended
return { answer, block or '', is_limited and 1 or 0, unpack(result) }
