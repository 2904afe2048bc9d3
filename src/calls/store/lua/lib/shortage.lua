--#include take reclaim
-- What allocate does when no pod of the chain is free.

-- Ends calls of the chain's pools that are past their lease until a pod is free. Returns how many ended, then the pod, its
-- pool, its load and the key of its scores as `take` does.
local function take_reclaimed(chain, kinds, grace)
  local ended = 0
  for i, kind in ipairs(kinds) do
    local pool, is_configured = chain[i], kind and kind ~= 'gone'
    local expired = is_configured
      and read_or_nil('ZRANGEBYSCORE', Key.pool_calls(pool), '-inf', digits(leases_end()), 'LIMIT', 0, 50)
    for _, sid in ipairs(expired or {}) do
      ended = ended + reclaim(sid, pool, grace)
      local pod, load, scores = take(pool, kind)
      if pod then
        serve_freed()
        return ended, pod, pool, load, scores
      end
    end
  end
  serve_freed()
  return ended
end

-- Blocked: pods with room that are not in `available`: draining, suspended, or lost from it. In an exclusive pool those
-- without a call; a full pod of a shared pool stays in `available`.
local function describe_pool(pool, value)
  local assigned = read_or_nil('SCARD', Key.assigned(pool)) or 0
  if assigned == 0 then return pool .. ' 0 pods' end
  local kind = parse_kind(value)
  local calls = read_or_nil('ZCARD', Key.pool_calls(pool)) or 0
  local others = kind == 'exclusive' and calls or 0
  if kind then
    others = others + (read_or_nil(kind == 'shared' and 'ZCARD' or 'SCARD', available_key(pool)) or 0)
  end
  return string.format('%s %d pods %d calls %d blocked', pool, assigned, calls, math.max(0, assigned - others))
end

-- Why a call got no pod, for operators: 'pool:gold 2 pods 1 calls 1 blocked; ...', one part per pool of its chain. Uses
-- counts only, 3 us per pool: under full load every call gets here.
local function describe_shortage(chain, kinds)
  local pools = {}
  for i, value in ipairs(kinds) do pools[i] = describe_pool(chain[i], value) end
  return table.concat(pools, '; ')
end
