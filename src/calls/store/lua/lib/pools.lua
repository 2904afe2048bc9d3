-- Pools and their kinds. `pools` maps a pool id ('pool:gold', 'merchant:acme') to its kind: 'exclusive', 'shared:N', 'label'
-- (a merchant pool that a pod's label created), or 'gone' (its tier was deleted).

-- Returns 'exclusive' | 'shared' | nil, and the maximum number of calls per pod.
local function parse_kind(value)
  if value == 'exclusive' or value == 'label' then return 'exclusive', 1 end
  local max = value and string.match(value, '^shared:(%d+)$')
  if max then return 'shared', tonumber(max) end
  return nil, 0
end

local function kind_of(pool)
  return parse_kind(pool and read_or_nil('HGET', Key.pools, pool))
end

local function is_merchant(pool)
  return string.sub(pool, 1, 9) == 'merchant:'
end

local function available_key(pool)
  return is_merchant(pool) and Key.merchant_pods(pool) or Key.available(pool)
end

-- The value of pod:tier ('gold', 'merchant:acme') as a pool id, and the reverse.
local function pool_of(tier)
  if not tier or is_merchant(tier) then return tier end
  return 'pool:' .. tier
end

local function tier_of(pool)
  return is_merchant(pool) and pool or string.sub(pool, 6)
end
