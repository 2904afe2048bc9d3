-- Why a call got no pod, for people: what each pool of its chain had, 'pool:gold 2 pods 1 calls 1 blocked; ...'.
-- By counts alone, 3 us a pool: while everything is taken, every call comes here.

-- Blocked: pods that have room and are not given, because they drain or are suspended, or lost from `available`. Of an
-- exclusive pool those without a call, as its pod with one has no room; a full pod of a shared one is in `available`.
local function saw_of(pool, value)
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

local function saw(kinds)
  local seen = {}
  for i, value in ipairs(kinds) do seen[i] = saw_of(ARGV[10 + i], value) end
  return table.concat(seen, '; ')
end
