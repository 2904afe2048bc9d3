-- Gives a call a pod, or returns the pod that it already has.
-- ARGV: 2 sid, 3 merchant, 4 route (provider/flow/template), 5 first lease ms, 6 record TTL ms (at least the lease),
--       7 tombstone TTL ms, 8 refuse after (store ms, '' = never), 9 the current second as the router estimates it, 10 that
--       second in ISO 8601 up to the dot (formatted here if it is another second), 11.. pool ids of the chain
-- Result: {'ok', pod, pool, allocated_at, lease deadline, fence, 1 = existing call, calls reclaimed, now}
--         {'no_pods', now} | {'late', now}
-- Guarantee: a SID keeps its pod while its call lives; an exclusive pod has one call, a shared one at most its limit, even
-- if derived sets are wrong; blocked and unregistered pods are never allocated, except pods that are set back, before a call
-- is refused. A key of a wrong type affects only its own pod or pool. The common path is inline: 10 % faster.
--#include start
local sid, lease, info_ttl, deadline = ARGV[2], ARGV[5], ARGV[6], now + ARGV[5]
if ARGV[8] ~= '' and now > tonumber(ARGV[8]) then return { 'late', now } end

local record_key = Key.call(sid)
local owner = call('HGET', record_key, 'pod_name')
if owner then
  local held = call('ZSCORE', Key.pod_calls(owner), sid)
  if held then
    --#include base calls pods
    deadline = math.max(deadline, tonumber(held))
    move_lease(sid, owner, (read_pod(owner)), deadline, info_ttl)
    call('HSET', record_key, 'asked_again', 1)
    call('SET', Key.lease(owner), sid, 'PX', digits(deadline - now))
    local record = call('HMGET', record_key, 'source_pool', 'allocated_at', 'fence')
    return { 'ok', owner, record[1], record[2], deadline, record[3], 1, 0, now }
  end
end
-- The first write of a new call: at maxmemory Redis refuses it before a pod is taken or a lease reclaimed.
local us, score = string.format('%.0f', now_us), string.format('%.0f', deadline)
local fence, before = us, redis.pcall('SET', Key.fence, us, 'GET')
if before and before.err then before = not call('SET', Key.fence, us) end
before = tonumber(before)
if before and before >= now_us and before < 9e15 then -- as next_count in lib/counter.lua
  fence = string.format('%.0f', before + 1)
  call('SET', Key.fence, fence)
end
if owner then call('DEL', record_key) end
local kinds = #ARGV > 10 and call('HMGET', Key.pools, unpack(ARGV, 11)) or {}
local reclaimed, pod, load, scores, pool, status = 0
for i, kind in ipairs(kinds) do
  pool = ARGV[10 + i]
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
  local chain = { unpack(ARGV, 11) }
  reclaimed, pod, pool, load, scores = take_reclaimed(chain, kinds, ARGV[7])
  if not pod then pod, pool, status = take_set_back(chain, kinds) end
  if not pod then
    note('no_pods', 'call', sid, 'merchant', ARGV[3], 'chain', table.concat(chain, ' '),
      'saw', describe_shortage(chain, kinds))
    return { 'no_pods', now }
  end
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
call('PEXPIRE', record_key, info_ttl)
call('SET', Key.lease(pod), sid, 'PX', lease)
redis.pcall('HSET', Key.pod(pod), 'status', status or 'allocated', 'allocated_call_sid', sid, 'allocated_at', allocated_at,
  'source_pool', pool)
redis.pcall('XADD', Key.events, 'MAXLEN', '~', EVENTS_MAX, '*', 'type', 'call_allocated', 'call', sid, 'pod', pod,
  'pool', pool, 'merchant', ARGV[3], 'fence', fence)
return { 'ok', pod, pool, allocated_at, deadline, fence, 0, reclaimed, now }
