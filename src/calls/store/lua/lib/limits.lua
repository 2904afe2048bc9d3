--#include base reclaim queues
-- `max_calls` of a merchant: its live calls are a set, never a counter, so that a lost step cannot leave it wrong.

-- True if the merchant may have one more call. At the limit, up to 20 members are checked: one whose call has ended leaves
-- the set, and one whose lease has expired ends.
local function has_room(merchant, max, grace)
  local key = Key.limited(merchant)
  max = max or math.huge
  if (read_or_nil('SCARD', key) or 0) < max then return true end
  for _, sid in ipairs(read_or_nil('SRANDMEMBER', key, 20) or {}) do
    local record = read_or_nil('HMGET', Key.call(sid), 'pod_name', 'limited') or {}
    local deadline = record[1] and read_or_nil('ZSCORE', Key.pod_calls(record[1]), sid)
    if not deadline or record[2] ~= merchant then
      call('SREM', key, sid)
      freed[merchant] = true
    elseif tonumber(deadline) <= leases_end() and home_of(record[1]) then
      reclaim(sid, home_of(record[1]), grace)
    end
  end
  if freed[merchant] then list_queue(merchant, true) end
  serve_freed()
  return (read_or_nil('SCARD', key) or 0) < max
end

-- Counts a call that got its pod. A queue whose merchant reaches its limit leaves the lists.
local function count_call(merchant, sid)
  call('SADD', Key.limited(merchant), sid)
  call('HSET', Key.call(sid), 'limited', merchant)
  list_queue(merchant)
end
