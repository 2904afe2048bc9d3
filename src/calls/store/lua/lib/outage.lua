--#include base
-- While no router reaches the store, no call can be renewed: a lease that ends in that time says nothing about its call.
-- Every router stamps `alive` once a second ('at from until' in ms, lua/stamp_alive.lua). A stamp older than 5 s is a gap: the
-- store or all routers were down, the store refused writes, or its clock jumped ahead. For 60 s after a gap no lease ends,
-- except those that had ended when it began: agents renew and report in that time.
local GAP_MS, GRACE_MS = 5000, 60000

local leases_end_at

-- Leases until this time are over, usually now. Every step that ends calls because of their leases asks here.
-- `stamps`: a router is alive now.
local function leases_end(stamps)
  if leases_end_at then return leases_end_at end
  local at, from, ends_at = string.match(text_at(Key.alive) or '', '^(%d+) (%d+) (%d+)$')
  at, from, ends_at = tonumber(at or now), tonumber(from or 0), tonumber(ends_at or 0)
  local is_gap = now - at > GAP_MS
  if is_gap then
    -- A second gap in the grace of the first: the leases that ended in either count.
    if ends_at <= at then from = at end
    ends_at = now + GRACE_MS
  end
  -- A later end was written before the clock was set back.
  leases_end_at = ends_at > now and ends_at <= now + GRACE_MS and from or now
  if is_gap or stamps then call('SET', Key.alive, digits(now) .. ' ' .. digits(from) .. ' ' .. digits(ends_at)) end
  if is_gap then
    local count, pools = 0, read_or_nil('HKEYS', Key.pools) or {}
    for _, pool in ipairs(pools) do
      count = count + (read_or_nil('ZCOUNT', Key.pool_calls(pool), '(' .. digits(from), digits(now)) or 0)
    end
    event('leases_extended', 'calls', count, 'gap_seconds', digits(math.floor((now - at) / 1000)), 'until', digits(ends_at))
  end
  return leases_end_at
end
