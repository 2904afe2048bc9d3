-- Writes the tier configuration and converts the pools to it in one step.
-- ARGV: 2 JSON text, 3 mode: 'init' (only if there is none), 'apply' (the stored text, written by hand),
--       'replace'; 4 expected version ('' = any), 5 actor, 6.. pairs of pool id and kind; the pair 'hold' has the rules for
--       waiting as JSON ('' = none)
-- Result: {'ok', version, changed pools} | {'exists'} (init) | {'changed', version} (apply, replace: another write came
--         first) | {'conflict', pool, reason}
-- Guarantee: the keys of a pool always have the type that `pools` says; all changes are made, or none.
--#include base serve unreadable settings
local key, text, mode = Key.tier_config, ARGV[2], ARGV[3]
local stored, version = text_at(key), tier_version()
if mode == 'init' and stored then return { 'exists' } end
if mode == 'apply' and stored ~= text then return { 'changed', version } end
if mode == 'replace' and ARGV[4] ~= '' and tonumber(ARGV[4]) ~= version then return { 'changed', version } end

local old, new = {}, {}
-- Derived from the configuration: a key of a wrong type is deleted and rebuilt below.
local flat = read_or_nil('HGETALL', Key.pools)
local is_lost, hold = not flat, nil
flat = flat or {}
for i = 1, #flat, 2 do old[flat[i]] = flat[i + 1] end
for i = 6, #ARGV, 2 do new[ARGV[i]] = ARGV[i + 1] end
hold, new.hold = new.hold, nil

-- The pool id of a tier after it enters or leaves the chain: same name, other keys.
local function twin(pool)
  if is_merchant(pool) then return 'pool:' .. string.sub(pool, 10) end
  return 'merchant:' .. string.sub(pool, 6)
end

-- Plan first: a conflict must change nothing.
local plan = {}
for pool, kind in pairs(new) do
  local from = pool
  local other = twin(pool)
  if not old[pool] and old[other] and old[other] ~= 'label' and not new[other] then from = other end
  local type_now = call('TYPE', available_key(from)).ok
  local type_new = parse_kind(kind) == 'shared' and 'zset' or 'set'
  local rebuild = from ~= pool or old[pool] == 'gone' or (type_now ~= 'none' and type_now ~= type_new)
    or (old[pool] and parse_kind(old[pool]) ~= parse_kind(kind))
  if rebuild then
    local pods = read_or_nil('SCARD', Key.assigned(from))
    if not pods then return { 'conflict', from, 'key ' .. Key.assigned(from) .. ' has a wrong type; rename it' } end
    if pods > 20000 then return { 'conflict', from, pods .. ' pods exceed the limit of 20000 for one conversion' } end
    local members = call('SMEMBERS', Key.assigned(from))
    if type_new == 'set' then
      local busy = 0
      for _, pod in ipairs(members) do
        local wrong = wrong_key(pod)
        if wrong then return { 'conflict', from, 'key ' .. wrong .. ' of one of its pods has a wrong type; rename it' } end
        if load_of(pod) > 1 then busy = busy + 1 end
      end
      if busy > 0 then
        return { 'conflict', from, busy .. ' of its pods have more than one live call; an exclusive pod has at most one' }
      end
    end
    table.insert(plan, { pool = pool, from = from, pods = members })
  end
end

local written, removed = {}, {}
for pool, kind in pairs(new) do if old[pool] ~= kind then table.insert(written, pool) end end
for pool, kind in pairs(old) do
  if not new[pool] and kind ~= 'label' and kind ~= 'gone' then table.insert(removed, pool) end
end
local changed = #written + #removed
local is_hold_changed = hold and (text_at(Key.tier_hold) or '') ~= hold
if stored == text and changed + #plan == 0 and not is_hold_changed then return { 'ok', version, 0 } end
-- The first write: at maxmemory Redis refuses it before anything has changed.
call('SET', key, text)
if is_hold_changed then call('SET', Key.tier_hold, hold) end
if is_lost then call('DEL', Key.pools) end
for _, pool in ipairs(written) do call('HSET', Key.pools, pool, new[pool]) end
for _, pool in ipairs(removed) do
  call('DEL', available_key(pool))
  if call('EXISTS', Key.assigned(pool), Key.pool_calls(pool)) == 0 then
    call('HDEL', Key.pools, pool)
  else
    call('HSET', Key.pools, pool, 'gone')
  end
end
for _, step in ipairs(plan) do
  call('DEL', available_key(step.from), available_key(step.pool))
  if step.from ~= step.pool then
    call('HDEL', Key.pools, step.from)
    call('SUNIONSTORE', Key.assigned(step.pool), Key.assigned(step.pool), Key.assigned(step.from))
    call('ZUNIONSTORE', Key.pool_calls(step.pool), 2, Key.pool_calls(step.pool), Key.pool_calls(step.from))
    call('DEL', Key.assigned(step.from), Key.pool_calls(step.from))
    for _, pod in ipairs(step.pods) do call('SET', Key.pod_tier(pod), tier_of(step.pool)) end
  end
  for _, pod in ipairs(call('SMEMBERS', Key.assigned(step.pool))) do
    if not set_aside(pod) then settle(pod) end
  end
end
table.sort(written)
for _, pool in ipairs(written) do serve_pool(pool) end -- a pod may have more places
if stored == text and changed == 0 and not is_hold_changed then return { 'ok', version, 0 } end
version = version + 1
call('SET', Key.tier_version, digits(version))
event('tiers_changed', 'version', version, 'by', ARGV[5], 'mode', mode)
return { 'ok', version, changed }
