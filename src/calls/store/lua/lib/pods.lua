--#include pools
-- A pod's truth (tier, draining mark, suspension, live calls) and what is derived from it.

-- Why a pod may not take a call, or false. The draining mark holds its deadline; one that an operator
-- wrote by hand (any other text) holds as long as the key exists.
local function block_of(draining, suspended)
  if suspended then return suspended end
  local untl = draining and tonumber(draining)
  if draining and (not untl or untl > now) then return 'draining' end
  return false
end

local function read_pod(pod)
  local found = call('MGET', P .. 'pod:tier:' .. pod, P .. 'pod:draining:' .. pod,
    P .. 'pod:suspended:' .. pod, P .. 'lease:' .. pod)
  return pool_of(found[1]), block_of(found[2], found[3]), found[4]
end

local function load_of(pod)
  return call('ZCARD', pod_calls_key(pod))
end

-- The one place that decides whether a pod can take a call. 1: put in, -1: taken out, 0: as it was.
local function place(pod, pool, kind, load, block)
  if kind == 'exclusive' then
    if block or load > 0 then return -call('SREM', available_key(pool), pod) end
    return call('SADD', available_key(pool), pod)
  elseif kind == 'shared' then
    if block then return -call('ZREM', available_key(pool), pod) end
    return call('ZADD', available_key(pool), load, pod)
  end
  return 0
end

-- The lease mirror names the latest live call, and is gone when there is none.
local function mirror_lease(pod, load, lease)
  if load == 0 then
    if lease then call('DEL', P .. 'lease:' .. pod) end
    return
  end
  if lease and call('ZSCORE', pod_calls_key(pod), lease) then return end
  local latest = call('ZRANGE', pod_calls_key(pod), -1, -1, 'WITHSCORES')
  call('SET', P .. 'lease:' .. pod, latest[1], 'PX', math.max(1, tonumber(latest[2]) - now))
end

local function status_of(load, block)
  if block then return 'draining' end
  return load > 0 and 'allocated' or 'available'
end

-- Brings everything derived from a pod's truth in line with it, writing only what differs.
local function settle(pod)
  local pool, block, lease = read_pod(pod)
  local load = load_of(pod)
  local moved = pool and place(pod, pool, kind_of(pool), load, block) or 0
  mirror_lease(pod, load, lease)
  local status = status_of(load, block)
  if pool and call('HGET', P .. 'pod:' .. pod, 'status') ~= status then
    call('HSET', P .. 'pod:' .. pod, 'status', status)
    if load == 0 then call('HSET', P .. 'pod:' .. pod, 'allocated_call_sid', '') end
  end
  return moved, load, block, pool
end
