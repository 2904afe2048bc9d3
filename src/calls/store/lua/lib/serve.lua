--#include take settle handover
-- Offers free pods to waiting calls, where no pod has just become free: a limit was raised, a queue has a new chain, or
-- something was missed.

-- Hands over the free pods of a pool, at most 100. `take` removes a pod from `available`; `settle` hands it over.
local function serve_pool(pool)
  local value = read_or_nil('HGET', Key.pools, pool)
  for _ = 1, 100 do
    if read_or_nil('EXISTS', Key.waiting(pool)) ~= 1 then return end
    local pod, load = take(pool, value)
    if not pod then
      pod = take_set_back({ pool }, { value })
      if not pod then return end
      load = load_of(pod)
      hand_over(pod, pool, load + 1, load)
    end
    settle(pod)
  end
end

-- `enters`: the queue may be missing from the lists, or its rules have changed.
local function serve_queue(queue, enters)
  if enters then list_queue(queue, true) end
  for pool in string.gmatch((queue_rules(queue)), '%S+') do serve_pool(pool) end
end
