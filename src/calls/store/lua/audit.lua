-- Reads everything about some pods and calls at one moment: a part of the keyspace, limited to them.
-- ARGV: 2 pool in whose sets they were found ('' = in none), 3 number of pods, 4.. those pods, then SIDs of calls
-- Result: {now, since when the limits of pools hold (ms, '' = unknown), {key without prefix, type, items}...}
-- Guarantee: reads only. Complete for the pods named; for a pod that only a record names, limited to that call. A key of a
-- wrong type reads as missing: audit_keys reports it.
--#include base pools
local found, rows, kinds, seen, over = ARGV[2], {}, {}, {}, false

local function add(key, kind, ...)
  if not rows[key] then rows[key] = { string.sub(key, #P + 1), kind, {} } end
  for _, item in ipairs({ ... }) do table.insert(rows[key][3], item) end
end

local function add_kind(pool)
  if kinds[pool] == nil then
    kinds[pool] = read_or_nil('HGET', Key.pools, pool)
    if kinds[pool] then add(Key.pools, 'hash', pool, kinds[pool]) end
  end
  return kinds[pool]
end

-- Adds the sets of a pool that contain the pod.
local function add_pool(pool, pod)
  add_kind(pool)
  if read_or_nil('SISMEMBER', Key.assigned(pool), pod) == 1 then add(Key.assigned(pool), 'set', pod) end
  local key = available_key(pool)
  local score = read_or_nil('ZSCORE', key, pod)
  if score then add(key, 'zset', pod, score) end
  if not score and read_or_nil('SISMEMBER', key, pod) == 1 then add(key, 'set', pod) end
end

local function add_index(pool, sid)
  local deadline = read_or_nil('ZSCORE', Key.pool_calls(pool), sid)
  if deadline then add(Key.pool_calls(pool), 'zset', sid, deadline) end
  add_kind(pool)
end

local function add_entry(pod, pool, sid, deadline)
  add(Key.pod_calls(pod), 'zset', sid, deadline)
  if pool then add_index(pool, sid) end
end

local fields = { 'pod_name', 'fence', 'allocated_at', 'source_pool' }
local function add_record(sid, holder)
  local known = not seen[sid] and read_or_nil('HMGET', Key.call(sid), unpack(fields))
  if not known or read_or_nil('EXISTS', Key.call(sid)) == 0 then return end
  seen[sid] = true
  add(Key.call(sid), 'hash')
  for i, field in ipairs(fields) do if known[i] then add(Key.call(sid), 'hash', field, known[i]) end end
  local owner = known[1]
  local deadline = owner and owner ~= holder and read_or_nil('ZSCORE', Key.pod_calls(owner), sid)
  if not deadline then return end
  local tier = read_or_nil('GET', Key.pod_tier(owner))
  if tier then add(Key.pod_tier(owner), 'string', tier) end
  add_entry(owner, pool_of(tier), sid, deadline)
end

local function add_pod(pod)
  local texts = { Key.pod_tier(pod), Key.pod_draining(pod), Key.pod_suspended(pod), Key.lease(pod) }
  local truth = call('MGET', unpack(texts))
  for i, key in ipairs(texts) do if truth[i] then add(key, 'string', truth[i]) end end
  local shown = read_or_nil('HMGET', Key.pod(pod), 'status', 'allocated_call_sid')
  if shown and read_or_nil('EXISTS', Key.pod(pod)) == 1 then
    add(Key.pod(pod), 'hash', 'status', shown[1] or '', 'allocated_call_sid', shown[2] or '')
  end
  if read_or_nil('HEXISTS', Key.pod_metadata, pod) == 1 then add(Key.pod_metadata, 'hash', pod, '') end
  local pool = pool_of(truth[1])
  if pool then add_pool(pool, pod) end
  if found ~= '' and found ~= pool then add_pool(found, pod) end
  local entries = read_or_nil('ZRANGE', Key.pod_calls(pod), 0, -1, 'WITHSCORES') or {}
  for i = 1, #entries, 2 do
    add_entry(pod, pool, entries[i], entries[i + 1])
    add_record(entries[i], pod)
  end
  local kind, max = parse_kind(pool and add_kind(pool))
  if kind == 'shared' and #entries / 2 > max then over = true end
end

local pods, since = tonumber(ARGV[3]), ''
for i = 4, 3 + pods do add_pod(ARGV[i]) end
for i = 4 + pods, #ARGV do
  add_record(ARGV[i])
  if found ~= '' then add_index(found, ARGV[i]) end
end
local fence = read_or_nil('GET', Key.fence)
if fence then add(Key.fence, 'string', fence) end
-- More calls than the limit are legal if the limit was lowered: find the latest time at which that happened.
for _, entry in ipairs(over and read_or_nil('XREVRANGE', Key.journal, '+', '-', 'COUNT', 500) or {}) do
  since = string.match(entry[1], '^%d+')
  if entry[2][2] == 'tiers_changed' then break end
end
local result = { digits(now), since }
for _, row in pairs(rows) do table.insert(result, row) end
return result
