-- Keeps the places of calls whose callers wait on an open connection.
-- ARGV: 2 ms until they count as abandoned, 3.. SIDs
-- Result: the SIDs that no longer wait
--#include base maxmemory
allow_at_maxmemory()
local gone = {}
for i = 3, #ARGV do
  local sid = ARGV[i]
  local known = read_or_nil('HMGET', Key.call(sid), 'hold', 'wait_until') or {}
  if known[1] == 'waiting' then
    write_or_skip('ZADD', Key.waiting_due, 'XX', digits(math.min(tonumber(known[2] or '') or now, now + ARGV[2])), sid)
  else
    table.insert(gone, sid)
  end
end
return gone
