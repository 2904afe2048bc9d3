--#include pods
-- Two keys of a pod are of use only as what they are: its calls, and what is known of it. Written by hand as another type,
-- no operation on that pod can go on. Whoever works on many pods leaves such a one aside, or it would stop them all.

-- The key that cannot be read, or nil.
local function wrong_key(pod)
  local calls, known = Key.pod_calls(pod), Key.pod(pod)
  if not read_or_nil('ZCARD', calls) then return calls end
  if not read_or_nil('HLEN', known) then return known end
end

-- Takes a pod that cannot be read out of the available ones; the sweep puts it back once the key is gone.
-- Returns the key, and -1 if the pod was among them; nil for a pod that can be read.
local function set_aside(pod)
  local wrong = wrong_key(pod)
  if not wrong then return nil end
  local pool = home_of(pod)
  return wrong, pool and place(pod, pool, kind_of(pool), 0, wrong) or 0
end
