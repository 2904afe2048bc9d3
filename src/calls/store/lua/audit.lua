-- Reads everything about some pods and calls at one moment: a part of the keyspace, limited to them.
-- ARGV: 2 pool in whose sets they were found ('' = in none), 3 number of pods, 4.. those pods, then SIDs of calls
-- Result: {now, since when the limits of pools hold (ms, '' = unknown), {key without prefix, type, items}...}
-- Guarantee: reads only. Complete for the pods named; for a pod that only a record names, limited to that call. A key of a
-- wrong type reads as missing: audit_keys reports it.
--#include audit_rows
local found, over = ARGV[2], false

-- Adds the sets of a pool that contain the pod, and the first queue that waits for one.
local function add_pool(pool, pod)
  add_kind(pool)
  if read_or_nil('SISMEMBER', Key.assigned(pool), pod) == 1 then add(Key.assigned(pool), 'set', pod) end
  add_member(available_key(pool), pod)
  local first = read_or_nil('ZRANGE', Key.waiting(pool), 0, 0) or {}
  if first[1] then add(Key.waiting(pool), 'zset', first[1], 0) end
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
-- More calls than the limit are legal if the limit was lowered: find the latest time at which that happened.
for _, entry in ipairs(over and read_or_nil('XREVRANGE', Key.journal, '+', '-', 'COUNT', 500) or {}) do
  since = string.match(entry[1], '^%d+')
  if entry[2][2] == 'tiers_changed' then break end
end
return reply_with_rows(since)
