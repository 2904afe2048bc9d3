-- When pods reported, and since when their silence counts.
-- `reported` has the time of each pod's last report. A pod that states its report interval is also in `reported:due`, by the
-- time at which it counts as silent: after three intervals, at least 15 s. `reported:since` is the first report after the
-- store had accepted none for half of that time: until then the store or the routers were unreachable, or the store's clock
-- was set, so the silence was not the pod's own.

-- The latest report of any pod in ms, or 0. Ignores reports from the future, written before the clock was set back.
local function latest_report()
  local found = read_or_nil('ZREVRANGEBYSCORE', Key.reported, digits(now), '-inf', 'WITHSCORES', 'LIMIT', 0, 1)
  return tonumber(found and found[2] or 0)
end

-- Records a report. `interval`: ms, or '' if the pod does not state it; its silence then never counts.
local function note_report(pod, interval)
  local bound = math.max(15000, 3 * (tonumber(interval) or 10000))
  if now - latest_report() > bound / 2 then call('SET', Key.reported_since, digits(now)) end
  -- A key of a wrong type disables the check for silence; the report still counts.
  redis.pcall('ZADD', Key.reported, digits(now), pod)
  if interval == '' then
    redis.pcall('ZREM', Key.reported_due, pod)
  else
    redis.pcall('ZADD', Key.reported_due, digits(now + bound), pod)
  end
end

-- Unblocks a pod that had to report first. `owed`: its `must_report`, 1 or the time at which a generation marked it
-- (lib/generation.lua). A report written before that time does not unblock it: it may omit a call that the store lost.
-- `written`: when the report was written, or nil if that is unknown: then the second report unblocks the pod.
local function unblock_reporter(pod, pool, owed, written)
  call('HDEL', Key.pod(pod), 'must_report') -- Redis accepts it at maxmemory, and then the rest of the script
  local marked, seen = string.match(owed or '', '^(%d%d+)( ?)')
  -- A mark from the future was written before the clock was set back.
  if marked and tonumber(marked) > now then written = nil end
  if marked and not (written and written >= tonumber(marked) or not written and seen ~= '') then
    redis.pcall('SREM', Key.reported_silent, pod)
    return call('HSET', Key.pod(pod), 'must_report', written and owed or marked .. ' reported')
  end
  local suspension = Key.pod_suspended(pod)
  local waits = text_at(suspension) == 'awaiting_report'
  if waits and tonumber(redis.pcall('ZSCORE', Key.flapping, pod) or nil) then
    call('SET', suspension, 'flapping')
  elseif waits then
    call('DEL', suspension)
  end
  if not owed and not waits then return end
  local was_silent = redis.pcall('SREM', Key.reported_silent, pod) == 1
  if waits and was_silent then event('pod_resumed', 'pod', pod, 'pool', pool) end
end

local function forget_silence(pod)
  redis.pcall('ZREM', Key.reported_due, pod)
  redis.pcall('SREM', Key.reported_silent, pod)
end
