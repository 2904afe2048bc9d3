-- Gives a call a pod, or the pod it already has.
-- ARGV: 2 sid, 3 merchant, 4 route (provider/flow/template), 5 first lease ms, 6 record ttl ms (not below it),
--       7 tombstone ms, 8 refuse after (store ms, '' = never), 9 the second it is as the router estimates it, 10 that
--       second in ISO 8601 up to the dot (written here if it is another), 11.. the chain's pool ids
-- Result: {'ok', pod, pool, allocated_at, deadline, fence, was_existing, reclaimed, now}
--         {'no_pods', now} | {'late', now}
-- Guarantee: the same SID gets the same pod while its call lives; an exclusive pod has one call, a shared
-- one at most its limit, whatever the derived sets say; blocked and unknown pods are never given. A key of another type
-- costs what it describes. The common way is written out, rare ways include what they need: 10 % faster than functions.
--#include start
local sid, lease, info_ttl, deadline = ARGV[2], ARGV[5], ARGV[6], now + ARGV[5]
if ARGV[8] ~= '' and now > tonumber(ARGV[8]) then return { 'late', now } end

local record_key = Key.call(sid)
local owner = call('HGET', record_key, 'pod_name')
if owner then
  --#include base
  --#include calls
  --#include pods
  local held = call('ZSCORE', Key.pod_calls(owner), sid)
  if held then
    deadline = math.max(deadline, tonumber(held))
    move_lease(sid, owner, (read_pod(owner)), deadline, info_ttl)
    call('HSET', record_key, 'asked_again', 1)
    call('SET', Key.lease(owner), sid, 'PX', digits(deadline - now))
    local record = call('HMGET', record_key, 'source_pool', 'allocated_at', 'fence')
    return { 'ok', owner, record[1], record[2], deadline, record[3], 1, 0, now }
  end
end
-- The first write of a new call: when Redis is out of memory, it is refused before a pod is taken or a lease reclaimed.
local us, score = string.format('%.0f', now_us), string.format('%.0f', deadline)
local fence, before = us, redis.pcall('SET', Key.fence, us, 'GET')
if before and before.err then before = not call('SET', Key.fence, us) end
if before and tonumber(before) >= now_us then -- as next_count in lib/counter.lua
  fence = string.format('%.0f', before + 1)
  call('SET', Key.fence, fence)
end
if owner then call('DEL', record_key) end
local kinds = #ARGV > 10 and call('HMGET', Key.pools, unpack(ARGV, 11)) or {}
local reclaimed, pod, load, scores, pool = 0
for i, kind in ipairs(kinds) do
  pool = ARGV[10 + i]
  if kind == 'exclusive' and string.sub(pool, 1, 5) == 'pool:' then
    -- As `take` does, for the one kind that is common enough to be written out.
    pod = redis.pcall('SPOP', Key.available(pool)) -- of another type: take finds none
    if pod then
      local truth = not pod.err
        and call('MGET', Key.pod_tier(pod), Key.pod_draining(pod), Key.pod_suspended(pod))
      local busy = not truth or redis.pcall('ZCARD', Key.pod_calls(pod)) ~= 0 -- nor is one given that cannot be read
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

-- Nothing free: calls of the chain whose lease has run out give their pods back now.
if not pod then
  --#include take
  --#include reclaim
  for i, kind in ipairs(kinds) do
    pool = ARGV[10 + i]
    local known = kind and kind ~= 'gone'
    local expired = known and read_or_nil('ZRANGEBYSCORE', Key.pool_calls(pool), '-inf', digits(now), 'LIMIT', 0, 50) or {}
    for _, old in ipairs(expired) do
      reclaimed = reclaimed + reclaim(old, pool, ARGV[7])
      pod, load, scores = take(pool, kind)
      if pod then break end
    end
    if pod then break end
  end
  if not pod then
    --#include shortage
    note('no_pods', 'call', sid, 'merchant', ARGV[3], 'chain', table.concat(ARGV, ' ', 11), 'saw', saw(kinds))
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
redis.pcall('HSET', Key.pod(pod), 'status', 'allocated', 'allocated_call_sid', sid, 'allocated_at', allocated_at,
  'source_pool', pool)
redis.pcall('XADD', Key.events, 'MAXLEN', '~', '50000', '*', 'type', 'call_allocated', 'call', sid, 'pod', pod,
  'pool', pool, 'merchant', ARGV[3], 'fence', fence)
return { 'ok', pod, pool, allocated_at, deadline, fence, 0, reclaimed, now }
