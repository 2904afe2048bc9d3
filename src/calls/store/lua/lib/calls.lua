--#include tombstones
-- What is left of a call that has ended: nothing but a tombstone, so that a late report cannot bring it back.
local function end_call(sid, pod, pool, grace)
  call('ZREM', Key.pod_calls(pod), sid)
  if pool then write_or_skip('ZREM', Key.pool_calls(pool), sid) end
  call('DEL', Key.call(sid))
  leave_tombstone(sid, grace)
end

-- What an event says of a call that lost its owner: for how long it was known here (its fence is the moment it was
-- allocated, adopted or imported, in microseconds), and when it last gave a sign of life. Nothing without a record.
local function last_words(sid)
  local known = read_or_nil('HMGET', Key.call(sid), 'fence', 'renewed_at') or {}
  local since = tonumber(known[1] or '')
  if not since then return {} end
  local words = { 'age_seconds', digits(math.max(0, math.floor(now / 1000 - since / 1000000))) }
  if known[2] then
    table.insert(words, 'renewed_at')
    table.insert(words, known[2])
  end
  return words
end

-- Moves a live call's lease; the call record outlives the lease by what the configuration checks. PEXPIRE comes first: it
-- passes when Redis is out of memory, and then so does the rest (lib/maxmemory.lua).
local function move_lease(sid, pod, pool, deadline, info_ttl)
  local score = digits(deadline)
  call('PEXPIRE', Key.call(sid), digits(math.max(info_ttl, deadline - now)))
  call('ZADD', Key.pod_calls(pod), score, sid)
  if pool then write_or_skip('ZADD', Key.pool_calls(pool), score, sid) end
end

-- Moves the leases of many live calls of a pod to one moment, 1,000 at a time: Lua hands over at most 8,000 values. The TTLs
-- of their records are the caller's to move.
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
