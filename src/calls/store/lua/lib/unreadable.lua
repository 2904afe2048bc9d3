--#include pods
-- A pod is unreadable if one of the two keys that every operation on it needs has a wrong type: its calls or its status.
-- Scripts that work on many pods skip it, so that it does not stop them.

-- The key of a wrong type, or nil.
local function wrong_key(pod)
  local calls, status = Key.pod_calls(pod), Key.pod(pod)
  if not read_or_nil('ZCARD', calls) then return calls end
  if not read_or_nil('HLEN', status) then return status end
end

-- Takes an unreadable pod out of `available`; the sweep returns it once the key is deleted or renamed.
-- Returns the key, and -1 if the pod was in `available`; nil for a readable pod.
local function set_aside(pod)
  local wrong = wrong_key(pod)
  if not wrong then return nil end
  local pool = home_of(pod)
  return wrong, pool and place(pod, pool, kind_of(pool), 0, wrong) or 0
end
