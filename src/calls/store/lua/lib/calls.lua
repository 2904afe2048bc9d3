--#include tombstones
-- Ends calls and moves their leases.

-- Merchants that dropped below their limit in this step, in that order.
local freed = {}
local function note_freed(merchant)
  if not freed[merchant] then table.insert(freed, merchant) end
  freed[merchant] = true
end

-- Deletes a call and leaves a tombstone, so that a late report does not adopt the call again.
local function end_call(sid, pod, pool, grace)
  local merchant, hold = unpack(read_or_nil('HMGET', Key.call(sid), 'limited', 'hold') or {})
  if merchant then
    --#include queues
    write_or_skip('SREM', Key.limited(merchant), sid)
    list_queue(merchant, true)
    note_freed(merchant)
  end
  call('ZREM', Key.pod_calls(pod), sid)
  if pool then write_or_skip('ZREM', Key.pool_calls(pool), sid) end
  call('DEL', Key.call(sid))
  -- A caller that has not picked up its pod may wait again.
  if not hold then leave_tombstone(sid, grace) end
end

-- Offers the free pods of its chain to the calls of every merchant that dropped below its limit. The last step of each script
-- that ends calls: earlier, a pod that the script is about to block or delete could get a call.
local function serve_freed()
  for _, merchant in ipairs(freed) do
    --#include serve
    serve_queue(merchant)
  end
end

-- Event fields of a call that lost its owner: its age (the fence is the time at which it was allocated, adopted or imported,
-- in microseconds) and its last renewal. Empty without a record.
local function age_fields(sid)
  local known = read_or_nil('HMGET', Key.call(sid), 'fence', 'renewed_at') or {}
  local since = tonumber(known[1] or '')
  if not since then return {} end
  local fields = { 'age_seconds', digits(math.max(0, math.floor(now / 1000 - since / 1000000))) }
  if known[2] then
    table.insert(fields, 'renewed_at')
    table.insert(fields, known[2])
  end
  return fields
end

-- Moves the lease of a live call. The record outlives the lease, as the configuration checks. PEXPIRE comes first: Redis
-- accepts it at maxmemory, and then the rest of the script (lib/maxmemory.lua).
local function move_lease(sid, pod, pool, deadline, info_ttl)
  local score = digits(deadline)
  call('PEXPIRE', Key.call(sid), digits(math.max(info_ttl, deadline - now)))
  call('ZADD', Key.pod_calls(pod), score, sid)
  if pool then write_or_skip('ZADD', Key.pool_calls(pool), score, sid) end
end

-- Moves the leases of many live calls of a pod to one deadline, 1,000 at a time: Lua passes at most 8,000 values. The caller
-- moves the TTLs of the records.
local function move_leases(sids, pod, pool, deadline)
  local score = digits(deadline)
  for first = 1, #sids, 1000 do
    local entries = {}
    for i = first, math.min(first + 999, #sids) do
      table.insert(entries, score)
      table.insert(entries, sids[i])
    end
    call('ZADD', Key.pod_calls(pod), unpack(entries))
    write_or_skip('ZADD', Key.pool_calls(pool), unpack(entries))
  end
end
