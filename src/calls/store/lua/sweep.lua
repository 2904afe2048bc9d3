-- Repairs one batch of a pool: ends expired calls, derives the state of pods again, cleans `available`.
-- ARGV: 2 epoch, 3 tombstone TTL ms, 4 pool, 5 phase ('calls' | 'pods' | 'available'), 6 cursor, 7 batch size
-- Result: {'ok', next cursor ('0' = phase done), looked at, calls ended, pods made available, pods taken out, then in phase
--         'pods' for every unreadable pod: pod, its key of a wrong type...}
--         {'stale_epoch'}
-- Guarantee: ends only calls past their lease or without a record; makes only registered pods available, with their true
-- load. `available` and the index of calls are derived: with a wrong type they are deleted, and phase 'pods' rebuilds them.
-- Without a readable `assigned` phase 'pods' does nothing.
--#include base epoch reclaim
if is_stale(tonumber(ARGV[2])) then return { 'stale_epoch' } end
local grace, pool, phase, batch = ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[7])
local ended, back, out = 0, 0, 0
local kind, key = kind_of(pool), available_key(pool)
local function drop_unless(name, expected)
  local found = call('TYPE', name).ok
  if found ~= 'none' and found ~= expected then call('DEL', name) end
end
drop_unless(Key.pool_calls(pool), 'zset')
if kind then drop_unless(key, kind == 'shared' and 'zset' or 'set') end

if phase == 'calls' then
  local expired = call('ZRANGEBYSCORE', Key.pool_calls(pool), '-inf', digits(leases_end()), 'LIMIT', 0, batch)
  local done = #expired < batch
  for _, sid in ipairs(expired) do
    ended = ended + reclaim(sid, pool, grace)
    -- A shared pod may have had many: the next batch continues.
    if ended >= batch then
      done = false
      break
    end
  end
  serve_freed()
  return { 'ok', done and '0' or '1', #expired, ended, 0, 0 }
end

if phase == 'pods' then
  local page = read_or_nil('SSCAN', Key.assigned(pool), ARGV[6], 'COUNT', batch) or { '0', {} }
  local unreadable = {}
  for _, pod in ipairs(page[2]) do
    local home = home_of(pod)
    local wrong, taken
    if home == pool then wrong, taken = set_aside(pod) end
    if wrong then
      out = out - taken
      table.insert(unreadable, pod)
      table.insert(unreadable, wrong)
    elseif home == pool then
      local lost = end_expired(pod, pool, grace, 'lease expired')
      local moved, _, _, _, shown = settle(pod)
      ended = ended + lost
      if moved < 0 then out = out + 1 end
      if moved > 0 and lost == 0 then
        back = back + 1
        local reason = shown == 'draining' and 'drain or suspension ended' or 'missing from available'
        event('pod_recovered', 'pod', pod, 'pool', pool, 'reason', reason)
      end
    elseif home then
      call('SREM', Key.assigned(pool), pod)
    end
  end
  serve_freed()
  return { 'ok', page[1], #page[2], ended, back, out, unpack(unreadable) }
end

-- Removes members of `available` that do not belong to this pool: allocate rejects them.
local shared = kind == 'shared'
local page = read_or_nil(shared and 'ZSCAN' or 'SSCAN', key, ARGV[6], 'COUNT', batch) or { '0', {} }
local step = shared and 2 or 1
for i = 1, #page[2], step do
  local pod = page[2][i]
  if home_of(pod) ~= pool then
    out = out + call(shared and 'ZREM' or 'SREM', key, pod)
  end
end
return { 'ok', page[1], #page[2] / step, 0, 0, out }
