-- Gives a call a pod, or returns the pod that it already has.
-- ARGV: 2 sid, 3 merchant, 4 route (provider/flow/template), 5 first lease ms, 6 record TTL ms (at least the lease),
--       7 tombstone TTL ms, 8 refuse after (store ms, '' = never), 9 the current second by the router's estimate, 10 the
--       same in ISO 8601 up to the dot, 11 rules for waiting ('' = it may not, see lib/waiting.lua), 12.. pools of the chain
-- Result: 'ok', pod, pool, allocated_at, lease deadline, fence, 1 = existing call, calls reclaimed, time in us, ms waited or '',
--         as lines of one string (0.4 us less per element). Else {'waiting', place, since ms, until ms, now} or {code, now}:
--         no_pods, merchant_limit, late, queue_full, wait_expired, wait_over (its wait ended before)
-- Guarantee: a SID keeps its pod while its call lives; an exclusive pod has one call, a shared one at most its limit, even
-- if derived sets are wrong; blocked and unregistered pods are never allocated, except pods that are set back, before a call
-- is refused; no merchant exceeds its limit. A key of a wrong type affects only its pod or pool. The common path is inline.
--#include start
local sid, lease, info_ttl, deadline = ARGV[2], ARGV[5], ARGV[6], now + ARGV[5]
if ARGV[8] ~= '' and now > tonumber(ARGV[8]) then return { 'late', now } end
local record_key = Key.call(sid)
local owner, hold = unpack(call('HMGET', record_key, 'pod_name', 'hold'))
if owner then
  local held = call('ZSCORE', Key.pod_calls(owner), sid)
  if held then
    --#include existing
    return renew_existing(sid, owner, hold, held, lease, info_ttl)
  end
end
-- A request that was on its way when its waiting call was released does not queue the call again.
if ARGV[11] ~= '' and (tonumber(redis.pcall('GET', Key.wait_released(sid))) or 0) > now then return { 'wait_over', now } end
-- The first write of a new call: at maxmemory Redis refuses it before a pod is taken or a lease reclaimed.
local score = string.format('%.0f', deadline)
local fence, before = us, redis.pcall('SET', Key.fence, us, 'GET')
if before and before.err then before = not call('SET', Key.fence, us) end
before = tonumber(before)
if before and before >= now_us and before < 9e15 then -- as next_count in lib/counter.lua
  fence = string.format('%.0f', before + 1)
  call('SET', Key.fence, fence)
end
if owner then call('DEL', record_key) end
if not owner and hold then
  --#include base waiting
  if ARGV[11] ~= '' then return ask_again(sid, cjson.decode(ARGV[11])) end
  -- It leaves the queue first: a lease reclaimed below could hand a pod over to this very call.
  end_wait_of(sid, 'wait_abandoned', 'asked without waiting')
end
local limit, is_limited = ARGV[3] ~= '' and tonumber(redis.pcall('HGET', Key.limits, ARGV[3])), false
if limit then
  --#include limits counter
  is_limited, fence = not has_room(ARGV[3], limit, ARGV[7]), next_count(Key.fence)
end
local kinds = #ARGV > 11 and not is_limited and call('HMGET', Key.pools, unpack(ARGV, 12)) or {}
local reclaimed, pod, load, scores, pool, status = '0'
for i, kind in ipairs(kinds) do
  pool = ARGV[11 + i]
  if kind == 'exclusive' and string.sub(pool, 1, 5) == 'pool:' then
    -- The same as `take`, for the most common kind. A set of a wrong type has no pods; an unreadable pod is not allocated.
    pod = redis.pcall('SPOP', Key.available(pool))
    if pod then
      local truth = not pod.err and call('MGET', Key.pod_tier(pod), Key.pod_draining(pod), Key.pod_suspended(pod))
      local busy = not truth or redis.pcall('ZCARD', Key.pod_calls(pod)) ~= 0
      if busy or truth[1] ~= string.sub(pool, 6) or truth[2] or truth[3] then
        --#include take
        if busy or pool_of(truth[1]) ~= pool or block_of(truth[2], truth[3]) then pod = take(pool, kind) end
      end
    end
  elseif kind then
    --#include take
    pod, load, scores = take(pool, kind)
  end
  if pod then break end
end

if not pod then
  --#include shortage
  local chain = { unpack(ARGV, 12) }
  reclaimed, pod, pool, load, scores = take_reclaimed(chain, kinds, ARGV[7])
  if not pod then pod, pool, status = take_last(chain, kinds) end
  if not pod then
    --#include waiting
    return enter_or_refuse(sid, chain, fence, is_limited, is_limited and 'max_calls ' .. limit or describe_shortage(chain, kinds))
  end
  --#include counter
  fence = next_count(Key.fence) -- calls that waited may have got theirs in this step
end
local allocated_at = ARGV[10] .. string.sub(us, 11, 13) .. 'Z'
if string.sub(us, 1, 10) ~= ARGV[9] then
  --#include iso
  allocated_at = iso(now)
end
local added = call('ZADD', Key.pod_calls(pod), score, sid)
if scores then call('ZADD', scores, load + added, pod) end
redis.pcall('ZADD', Key.pool_calls(pool), score, sid)
call('HSET', record_key, 'pod_name', pod, 'source_pool', pool, 'merchant_id', ARGV[3], 'allocated_at', allocated_at,
  'fence', fence, 'route', ARGV[4])
if limit then
  --#include base limits
  count_call(ARGV[3], sid)
end
call('PEXPIRE', record_key, info_ttl)
call('SET', Key.lease(pod), sid, 'PX', lease)
redis.pcall('HSET', Key.pod(pod), 'status', status or 'allocated', 'allocated_call_sid', sid, 'allocated_at', allocated_at,
  'source_pool', pool)
redis.pcall('XADD', Key.events, 'MAXLEN', '~', EVENTS_MAX, '*', 'type', 'call_allocated', 'call', sid, 'pod', pod,
  'pool', pool, 'merchant', ARGV[3], 'fence', fence)
return table.concat({ 'ok', pod, pool, allocated_at, score, fence, '0', reclaimed, us, '' }, '\n')
