--#include base pools
-- Collects keys that an audit reads at one moment: `rows` has {key without prefix, type, items} by key.
local rows, kinds, seen = {}, {}, {}

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

local function add_index(pool, sid)
  local deadline = read_or_nil('ZSCORE', Key.pool_calls(pool), sid)
  if deadline then add(Key.pool_calls(pool), 'zset', sid, deadline) end
  add_kind(pool)
end

local function add_entry(pod, pool, sid, deadline)
  add(Key.pod_calls(pod), 'zset', sid, deadline)
  if pool then add_index(pool, sid) end
end

-- Adds the entry of a call in a set or sorted set.
local function add_member(key, sid)
  local score = read_or_nil('ZSCORE', key, sid)
  if score then add(key, 'zset', sid, score) end
  if not score and read_or_nil('SISMEMBER', key, sid) == 1 then add(key, 'set', sid) end
end

-- Adds where a waiting call waits, and whether a limit counts a call.
local function add_wait(sid, hold, queue, merchant)
  if hold == 'waiting' then
    add_member(Key.waiting_calls((queue or '')), sid)
    add_member(Key.waiting_due, sid)
  end
  local max = merchant and read_or_nil('HGET', Key.limits, merchant)
  if not max then return end
  add(Key.limits, 'hash', merchant, max)
  add_member(Key.limited(merchant), sid)
end

local fields = { 'pod_name', 'fence', 'allocated_at', 'source_pool', 'hold', 'queue', 'merchant_id' }
local function add_record(sid, holder)
  local known = not seen[sid] and read_or_nil('HMGET', Key.call(sid), unpack(fields))
  if not known or read_or_nil('EXISTS', Key.call(sid)) == 0 then return end
  seen[sid] = true
  add(Key.call(sid), 'hash')
  for i, field in ipairs(fields) do if known[i] then add(Key.call(sid), 'hash', field, known[i]) end end
  add_wait(sid, unpack(known, 5))
  local owner = known[1]
  local deadline = owner and owner ~= holder and read_or_nil('ZSCORE', Key.pod_calls(owner), sid)
  if not deadline then return end
  local tier = read_or_nil('GET', Key.pod_tier(owner))
  if tier then add(Key.pod_tier(owner), 'string', tier) end
  add_entry(owner, pool_of(tier), sid, deadline)
end

-- The reply of the script. `since`: the limits have not changed since then.
local function reply_with_rows(since)
  local fence = read_or_nil('GET', Key.fence)
  if fence then add(Key.fence, 'string', fence) end
  local result = { digits(now), since }
  for _, row in pairs(rows) do table.insert(result, row) end
  return result
end
