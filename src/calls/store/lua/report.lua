-- Processes the heartbeat of a pod: renews, adopts and ends its calls as it reports them, within its capacity.
-- ARGV: 2 pod, 3 uid ('' = not given), 4 lease ms, 5 record TTL ms, 6 report grace ms, 7 time of the report (store ms, '' =
--       not given), 8 report interval ms ('' = not given), 9.. call SIDs
-- Result: {'ok', {renewed}, {adopted}, {ended}, {conflicts}, {sid, fence, ...}, now} | {'pod_not_found'}
--         {'other_uid', the registered uid} | {'stale_report'}
-- Guarantee: never adopts a call that another pod owns, that has ended, or that exceeds the capacity.
--#include base iso counter calls settle leftover silence lost_release queues
local pod, uid, lease, info_ttl, grace, as_of = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], tonumber(ARGV[7])
local pool = home_of(pod)
if not pool then return { 'pod_not_found' } end
local known = call('HMGET', Key.pod(pod), 'uid', 'last_report', 'must_report')
if uid ~= '' and known[1] and known[1] ~= '' and known[1] ~= uid then return { 'other_uid', known[1] } end
-- Written after now by more than clocks drift: the store's clock was set back. Such a report ends no call.
local written = as_of and as_of <= now + 1000 and as_of or nil
if written then
  -- Refuse a report older than the last one, but only for one grace: the store's clock may have been set back.
  local last, at, whose = string.match(known[2] or '', '^(%d+) (%d+) (.*)$')
  if whose == uid and as_of < tonumber(last) and math.abs(now - at) < tonumber(grace) then return { 'stale_report' } end
end
unblock_reporter(pod, pool, known[3], written)
if written then call('HSET', Key.pod(pod), 'last_report', ARGV[7] .. ' ' .. digits(now) .. ' ' .. uid) end
note_report(pod, ARGV[8])
local reported, unknown, renewed, adopted, ended, conflicts, fences, waited = {}, {}, {}, {}, {}, {}, {}, {}
-- There may be 10,000 calls (55 ms of the store): values that they share are read and written once.
local at, deadline, record_ttl = iso(now), now + lease, digits(math.max(info_ttl, lease))
local own, entries = {}, call('ZRANGE', Key.pod_calls(pod), 0, -1, 'WITHSCORES')
for i = 1, #entries, 2 do own[entries[i]] = true end
for i = 9, #ARGV do
  local sid = ARGV[i]
  if not reported[sid] then
    reported[sid] = true
    local record = read_or_nil('HMGET', Key.call(sid), 'pod_name', 'fence', 'missing_since', 'hold') or {}
    local owner = record[1]
    if owner == pod and own[sid] then
      call('PEXPIRE', Key.call(sid), record_ttl)
      call('HSET', Key.call(sid), 'renewed_at', at)
      if record[3] or record[4] then call('HDEL', Key.call(sid), 'missing_since', 'omitted_at', 'hold') end
      table.insert(renewed, sid)
      table.insert(fences, sid)
      table.insert(fences, record[2] or '')
    -- An error is true as well: the call of an unreadable pod stays with that pod.
    elseif owner and owner ~= pod and redis.pcall('ZSCORE', Key.pod_calls(owner), sid) then
      table.insert(conflicts, sid)
    else
      waited[sid] = record[4]
      table.insert(unknown, sid)
    end
  end
end
move_leases(renewed, pod, pool, deadline)

local over, kind, max = ended_lately(unknown, grace), kind_of(pool)
local is_full = kind and finds_no_place(unknown, own, over, waited, max - #entries / 2)
-- A call that the pod no longer reports ends one grace after the first report without it. Its lease is cut to that time, so
-- that the sweep and allocate end it if the pod stops reporting.
for i = 1, as_of and not written and 0 or #entries, 2 do
  local sid = entries[i]
  local record = not reported[sid]
    and read_or_nil('HMGET', Key.call(sid), 'missing_since', 'fence', 'hold', 'renewed_at', 'omitted_at') or {}
  -- A report cannot name a call that was allocated after it was written, or that its caller has not picked up yet.
  local is_newer = as_of and (tonumber(record[2]) or 0) / 1000 > as_of
  if not reported[sid] and not record[3] and not drop_leftover(sid, pod, pool) and not is_newer then
    local since = tonumber(record[1]) or now
    local is_lost = lost_release(sid, written, record[2], record[4], record[5], is_full)
    if is_lost or now >= since + grace then
      local fields = age_fields(sid)
      end_call(sid, pod, pool, grace)
      local reason = is_lost and 'its release was lost in a failover' or 'not in the reports of its pod'
      event('call_recovered', 'call', sid, 'pod', pod, 'pool', pool, 'reason', reason, unpack(fields))
      table.insert(ended, sid)
    elseif call('TYPE', Key.call(sid)).ok == 'hash' then
      call('HSET', Key.call(sid), 'missing_since', digits(since))
      move_lease(sid, pod, pool, math.min(since + grace, tonumber(entries[i + 1])), info_ttl)
    end
  end
end
local load, fence = load_of(pod), nil
for _, sid in ipairs(unknown) do
  if (own[sid] or load < (kind and max or 1)) and (waited[sid] or not over[sid]) then
    if waited[sid] then end_wait_of(sid, 'wait_abandoned', 'adopted by pod ' .. pod) end
    fence = fence and digits(fence + 1) or next_count(Key.fence)
    call('DEL', Key.call(sid)) -- drops missing_since of an earlier call
    call('HSET', Key.call(sid), 'pod_name', pod, 'source_pool', pool, 'merchant_id', '', 'allocated_at', at,
      'fence', fence, 'renewed_at', at)
    call('PEXPIRE', Key.call(sid), record_ttl)
    if not own[sid] then load = load + 1 end
    event('call_adopted', 'call', sid, 'pod', pod, 'pool', pool, 'fence', fence)
    table.insert(adopted, sid)
    table.insert(fences, sid)
    table.insert(fences, fence)
  else
    table.insert(conflicts, sid)
  end
end
if fence then call('SET', Key.fence, fence) end
move_leases(adopted, pod, pool, deadline)
local _, after = settle(pod)
if after > 0 then call('PEXPIRE', Key.lease(pod), lease) end
serve_freed()
return { 'ok', renewed, adopted, ended, conflicts, fences, now }
