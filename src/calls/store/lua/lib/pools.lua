-- What the store knows of pools. `pools` maps a pool id ('pool:gold', 'merchant:acme') to its kind:
-- 'exclusive', 'label' (a merchant pool made by a pod's label), 'shared:N', or 'gone' (its tier was deleted).
-- Results: 'exclusive' | 'shared' | nil, and the calls a pod of it may have.
local function parse_kind(value)
  if value == 'exclusive' or value == 'label' then return 'exclusive', 1 end
  local max = value and string.match(value, '^shared:(%d+)$')
  if max then return 'shared', tonumber(max) end
  return nil, 0
end

local function kind_of(pool)
  return parse_kind(pool and read_or_nil('HGET', Key.pools, pool))
end

local function available_key(pool)
  if string.sub(pool, 1, 9) == 'merchant:' then return Key.merchant_pods(pool) end
  return Key.available(pool)
end

-- The value of pod:tier ('gold', 'merchant:acme') as a pool id, and back.
local function pool_of(tier)
  if not tier or string.sub(tier, 1, 9) == 'merchant:' then return tier end
  return 'pool:' .. tier
end

local function tier_of(pool)
  return string.sub(pool, 1, 5) == 'pool:' and string.sub(pool, 6) or pool
end
