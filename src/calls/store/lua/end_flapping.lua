-- Makes pods available again that were set back and whose time is over (lib/flapping.lua).
-- ARGV: 2 epoch, 3 batch size
-- Result: {'ok', pods looked at} | {'stale_epoch'}
-- Guarantee: a pod that is suspended for another reason stays suspended.
--#include base epoch settle unreadable
if is_stale(tonumber(ARGV[2])) then return { 'stale_epoch' } end
local key = Key.flapping
local over = read_or_nil('ZRANGEBYSCORE', key, '-inf', digits(now), 'LIMIT', 0, ARGV[3]) or {}
-- A block lasts at most 5 min: an end further ahead means that the store's clock was set back.
if #over == 0 then over = read_or_nil('ZRANGEBYSCORE', key, digits(now + 300001), '+inf', 'LIMIT', 0, ARGV[3]) or {} end
for _, pod in ipairs(over) do
  call('ZREM', key, pod)
  if text_at(Key.pod_suspended(pod)) == 'flapping' then
    call('DEL', Key.pod_suspended(pod))
    if not set_aside(pod) then settle(pod) end
    event('pod_resumed', 'pod', pod, 'pool', home_of(pod) or '')
  end
end
return { 'ok', #over }
