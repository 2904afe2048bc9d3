-- Cleans one page of a pool's index: removes calls that no pod of the pool has. An earlier router removes and moves pods
-- without updating the index.
-- ARGV: 2 pool, 3 cursor, 4 page size
-- Result: next cursor ('0' = done)
--#include base pods
local pool = ARGV[2]
local page = read_or_nil('ZSCAN', Key.pool_calls(pool), ARGV[3], 'COUNT', ARGV[4]) or { '0', {} }
for i = 1, #page[2], 2 do
  local sid = page[2][i]
  local pod = (read_or_nil('HMGET', Key.call(sid), 'pod_name') or {})[1]
  local is_on_it = pod and home_of(pod) == pool and read_or_nil('ZSCORE', Key.pod_calls(pod), sid)
  if not is_on_it then call('ZREM', Key.pool_calls(pool), sid) end
end
return page[1]
