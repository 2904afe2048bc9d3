-- Everything that says something about some pods and calls, at one moment: a part of the keys, cut down to them.
-- ARGV: 2 pool in whose sets they were found ('' = in none), 3 how many pods, 4.. those pods, then SIDs of calls
-- Result: {now, since when the limits of pools hold (ms, '' = unknown), {key without prefix, type, items}...}
-- Guarantee: reads only. Of the pods named all is there; of a pod that only a call's record names, no more than that
-- call needs. A key of a wrong type reads as if it were not there: audit_keys tells of it.
--#include base
--#include pools
local found, rows, kinds, seen, over = ARGV[2], {}, {}, {}, false

local function read(...)
  local reply = redis.pcall(...)
  return not (type(reply) == 'table' and reply.err) and reply
end

local function add(key, kind, ...)
  if not rows[key] then rows[key] = { string.sub(key, #P + 1), kind, {} } end
  for _, item in ipairs({ ... }) do table.insert(rows[key][3], item) end
end

local function kind_once(pool)
  if kinds[pool] == nil then
    kinds[pool] = read('HGET', Key.pools, pool)
    if kinds[pool] then add(Key.pools, 'hash', pool, kinds[pool]) end
  end
  return kinds[pool]
end

-- Which sets of a pool have the pod.
local function look_pool(pool, pod)
  kind_once(pool)
  if read('SISMEMBER', Key.assigned(pool), pod) == 1 then add(Key.assigned(pool), 'set', pod) end
  local key = available_key(pool)
  local score = read('ZSCORE', key, pod)
  if score then add(key, 'zset', pod, score) end
  if not score and read('SISMEMBER', key, pod) == 1 then add(key, 'set', pod) end
end

local function look_index(pool, sid)
  local deadline = read('ZSCORE', Key.pool_calls(pool), sid)
  if deadline then add(Key.pool_calls(pool), 'zset', sid, deadline) end
  kind_once(pool)
end

local function look_entry(pod, pool, sid, deadline)
  add(Key.pod_calls(pod), 'zset', sid, deadline)
  if pool then look_index(pool, sid) end
end

local fields = { 'pod_name', 'fence', 'allocated_at', 'source_pool' }
local function look_record(sid, holder)
  local known = not seen[sid] and read('HMGET', Key.call(sid), unpack(fields))
  if not known or read('EXISTS', Key.call(sid)) == 0 then return end
  seen[sid] = true
  add(Key.call(sid), 'hash')
  for i, field in ipairs(fields) do if known[i] then add(Key.call(sid), 'hash', field, known[i]) end end
  local owner = known[1]
  local deadline = owner and owner ~= holder and read('ZSCORE', Key.pod_calls(owner), sid)
  if not deadline then return end
  local tier = read('GET', Key.pod_tier(owner))
  if tier then add(Key.pod_tier(owner), 'string', tier) end
  look_entry(owner, pool_of(tier), sid, deadline)
end

local function look_pod(pod)
  local texts = { Key.pod_tier(pod), Key.pod_draining(pod), Key.pod_suspended(pod), Key.lease(pod) }
  local truth = call('MGET', unpack(texts))
  for i, key in ipairs(texts) do if truth[i] then add(key, 'string', truth[i]) end end
  local shown = read('HMGET', Key.pod(pod), 'status', 'allocated_call_sid')
  if shown and read('EXISTS', Key.pod(pod)) == 1 then
    add(Key.pod(pod), 'hash', 'status', shown[1] or '', 'allocated_call_sid', shown[2] or '')
  end
  if read('HEXISTS', Key.pod_metadata, pod) == 1 then add(Key.pod_metadata, 'hash', pod, '') end
  local pool = pool_of(truth[1])
  if pool then look_pool(pool, pod) end
  if found ~= '' and found ~= pool then look_pool(found, pod) end
  local entries = read('ZRANGE', Key.pod_calls(pod), 0, -1, 'WITHSCORES') or {}
  for i = 1, #entries, 2 do
    look_entry(pod, pool, entries[i], entries[i + 1])
    look_record(entries[i], pod)
  end
  local kind, max = parse_kind(pool and kind_once(pool))
  if kind == 'shared' and #entries / 2 > max then over = true end
end

local pods, since = tonumber(ARGV[3]), ''
for i = 4, 3 + pods do look_pod(ARGV[i]) end
for i = 4 + pods, #ARGV do
  look_record(ARGV[i])
  if found ~= '' then look_index(found, ARGV[i]) end
end
local fence = read('GET', Key.fence)
if fence then add(Key.fence, 'string', fence) end
-- More calls than the limit are right where it was lowered: when that was at the latest.
for _, entry in ipairs(over and read('XREVRANGE', Key.journal, '+', '-', 'COUNT', 500) or {}) do
  since = string.match(entry[1], '^%d+')
  if entry[2][2] == 'tiers_changed' then break end
end
local result = { digits(now), since }
for _, row in pairs(rows) do table.insert(result, row) end
return result
