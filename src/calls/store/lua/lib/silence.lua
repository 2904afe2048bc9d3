-- When pods reported, and since when a pod's silence counts.
-- `reported` has the last report of each pod. A pod that says at which interval it reports is in `reported:due` too, by the
-- moment at which it counts as silent: after three intervals, at least 15 s. `reported:since` is the first report after a
-- time in which the store accepted none, for half of what makes the reporter itself silent: until then the store or the
-- routers were unreachable or the store's clock was set, and no pod's silence was its own.

-- The latest report of any pod, in ms, or 0. A report from after now was written before the clock was set back.
local function latest_report()
  local found = read_or_nil('ZREVRANGEBYSCORE', Key.reported, digits(now), '-inf', 'WITHSCORES', 'LIMIT', 0, 1)
  return tonumber(found and found[2] or 0)
end

-- Notes a report that the store accepted. `interval`: ms, or '' where the pod does not say; then its silence never counts.
local function note_report(pod, interval)
  local bound = math.max(15000, 3 * (tonumber(interval) or 10000))
  if now - latest_report() > bound / 2 then call('SET', Key.reported_since, digits(now)) end
  -- A key of a wrong type costs the check of silence, and no report.
  redis.pcall('ZADD', Key.reported, digits(now), pod)
  if interval == '' then
    redis.pcall('ZREM', Key.reported_due, pod)
  else
    redis.pcall('ZADD', Key.reported_due, digits(now + bound), pod)
  end
end

-- A report ends the wait for it.
local function end_wait(pod, pool)
  local owed = call('HDEL', Key.pod(pod), 'must_report') -- passes when Redis is out of memory, and then the rest does
  local suspension = Key.pod_suspended(pod)
  local waits = text_at(suspension) == 'awaiting_report'
  if waits then call('DEL', suspension) end
  if owed == 0 and not waits then return end
  local was_silent = redis.pcall('SREM', Key.reported_silent, pod) == 1
  if waits and was_silent then event('pod_resumed', 'pod', pod, 'pool', pool) end
end

local function forget_silence(pod)
  redis.pcall('ZREM', Key.reported_due, pod)
  redis.pcall('SREM', Key.reported_silent, pod)
end
