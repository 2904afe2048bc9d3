-- A call has failed if its caller could not connect, or if it ends within 5 s of its allocation and was neither renewed nor
-- reported: a proxy gives up on a dead pod after 2 to 3 s, and few real calls are as short. The third failed call in a row
-- sets the pod back; a short one only if the pod differs from its pool. That check takes up to 12 commands, so only the third
-- and every tenth short call in a row run it.

-- Counts a failed call and sets the pod back if it must be. `is_unclaimed`: the caller left before the answer, which says
-- nothing about the pod. Returns the failed calls in a row, and '1' if the pod is set back now. Runs for every short call, so
-- the functions of the flap guard are defined only when it checks: they took a fifth of the time of a release.
local function count_failure(pod, pool, value, load, suspended, is_refused, is_unclaimed)
  local known = redis.pcall('HMGET', Key.pod(pod), 'failures', 'set_backs')
  local before = tonumber(known[2] or '') or 0
  if is_unclaimed then return known[1] or '', '0' end
  local failures = (tonumber(known[1] or '') or 0) + 1
  if failures == 1 and before > 0 then
    before = 0
    call('HDEL', Key.pod(pod), 'set_backs')
  end
  local checks = failures >= 3 and not suspended and (is_refused or before > 0 or failures == 3 or failures % 10 == 0)
  local text = string.format('%d', failures)
  if not checks then return text, '0' end
  --#include flapping
  local is_set_back = (is_refused or differs(pod, pool)) and set_back(pod, pool, value, load, failures, before)
  return text, is_set_back and '1' or '0'
end
