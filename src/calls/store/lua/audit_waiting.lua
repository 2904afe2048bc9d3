-- Reads the queue and the limit of a merchant, and some calls of them, at one moment.
-- ARGV: 2 merchant ('' = the queue of all merchants without a configuration), 3 number of pools, 4.. pools that list the queue,
--       then SIDs found in the queue or counted by the limit
-- Result: as of `audit`; the time is that of the last change of the merchant, if it has more calls than its limit
-- Guarantee: reads only. At the limit, all calls that it counts are read.
--#include audit_rows queues
local merchant, since, pools = ARGV[2], '', tonumber(ARGV[3])
local limited, waiting = Key.limited(merchant), Key.waiting_calls(merchant)
local max = tonumber(read_or_nil('HGET', Key.limits, merchant) or '')
local count = max and read_or_nil('SCARD', limited) or 0
if max then add(Key.limits, 'hash', merchant, digits(max)) end
for _, sid in ipairs(max and count >= max and call('SMEMBERS', limited) or {}) do
  add(limited, 'set', sid)
  add_record(sid)
end
for i = 4 + pools, #ARGV do
  add_record(ARGV[i])
  add_member(limited, ARGV[i])
  add_member(waiting, ARGV[i])
end
for _, first in ipairs(read_or_nil('ZRANGE', waiting, 0, 0) or {}) do
  add_record(first)
  add_member(waiting, first)
end
add(Key.waiting_queue(merchant), 'hash', unpack(read_or_nil('HGETALL', Key.waiting_queue(merchant)) or {}))
add_member(Key.waiting_queues, merchant)
for i = 4, 3 + pools do add_member(Key.waiting(ARGV[i]), merchant) end
for pool in string.gmatch((queue_rules(merchant)), '%S+') do add_member(Key.waiting(pool), merchant) end
-- More calls than the limit are legal if the limit was lowered: find the latest time at which that happened.
for _, entry in ipairs(max and count > max and read_or_nil('XREVRANGE', Key.journal, '+', '-', 'COUNT', 500) or {}) do
  since = string.match(entry[1], '^%d+')
  if entry[2][2] == 'merchant_changed' and entry[2][4] == merchant then break end
end
return reply_with_rows(since)
