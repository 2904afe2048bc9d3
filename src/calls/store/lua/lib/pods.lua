--#include pools
-- A pod's truth (tier, draining mark, suspension, live calls) and its place in the available set.

-- The deadline in a draining mark: 12 to 14 digits of milliseconds (1973 to 5138). An operator wrote any other text by hand.
local function deadline_of(draining)
  return string.match(draining, '^%d+$') and #draining >= 12 and #draining <= 14 and tonumber(draining) or nil
end

-- Why a pod may not take a call, or false. A mark without a deadline blocks for as long as it exists.
local function block_of(draining, suspended)
  if suspended then return suspended end
  local deadline = draining and deadline_of(draining)
  if draining and (not deadline or deadline > now) then return 'draining' end
  return false
end

-- Returns the pool, the block, the call of the lease mirror and the draining mark.
local function read_pod(pod)
  local found = call('MGET', Key.pod_tier(pod), Key.pod_draining(pod), Key.pod_suspended(pod), Key.lease(pod))
  return pool_of(found[1]), block_of(found[2], found[3]), found[4], found[2]
end

local function home_of(pod)
  return pool_of(text_at(Key.pod_tier(pod)))
end

local function load_of(pod)
  return call('ZCARD', Key.pod_calls(pod))
end

-- The only function that decides whether a pod can take a call. Calls that wait for the pod get it first. Returns 1: added
-- to `available`, -1: removed, 0: unchanged, or the key has a wrong type, until the sweep deletes it; and the load.
-- `hands_over`: false = no waiting call gets the pod, true = the caller knows that calls wait. The rest is for hand_over.
local function place(pod, pool, kind, load, block, hands_over, ...)
  if kind and not block and hands_over == nil then hands_over = read_or_nil('EXISTS', Key.waiting(pool)) == 1 end
  if kind and not block and hands_over then
    --#include handover
    local max = kind == 'exclusive' and 1 or select(2, kind_of(pool))
    load = hand_over(pod, pool, max, load, ...)
  end
  if kind == 'exclusive' then
    if block or load > 0 then return -(write_or_skip('SREM', available_key(pool), pod) or 0), load end
    return write_or_skip('SADD', available_key(pool), pod) or 0, load
  elseif kind == 'shared' then
    if block then return -(write_or_skip('ZREM', available_key(pool), pod) or 0), load end
    return write_or_skip('ZADD', available_key(pool), load, pod) or 0, load
  end
  return 0, load
end
