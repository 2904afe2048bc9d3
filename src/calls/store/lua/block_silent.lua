-- Blocks pods that no longer report: takes them out of `available` and keeps their calls, until their next report.
-- ARGV: 2 epoch, 3 number of silent pods to skip, 4 batch size
-- Result: {'ok', looked at, left unblocked, {pod, pool, seconds since its last report}...} | {'stale_epoch'}
-- Guarantee: only silence during which the store accepted reports of other pods counts; at most half of a pool is blocked; a
-- pod that is suspended for another reason does not change.
--#include base epoch settle unreadable silence
if is_stale(tonumber(ARGV[2])) then return { 'stale_epoch' } end
local latest, since = latest_report(), tonumber(text_at(Key.reported_since) or '') or 0
local room = {}

-- How many more pods of the pool may be blocked for silence; 0 if one of its keys has a wrong type.
local function room_in(pool)
  if not room[pool] then
    local silent = read_or_nil('SINTER', Key.reported_silent, Key.assigned(pool))
    room[pool] = silent and math.floor(call('SCARD', Key.assigned(pool)) / 2) - #silent or 0
  end
  return room[pool]
end

local function block(pod, pool, silent_seconds)
  room[pool] = room[pool] - 1
  call('SADD', Key.reported_silent, pod)
  call('ZREM', Key.reported_due, pod)
  -- The field outlasts a suspension for another reason: only a report ends this block.
  call('HSET', Key.pod(pod), 'must_report', 1)
  call('SET', Key.pod_suspended(pod), 'awaiting_report')
  local _, load = settle(pod)
  event('pod_suspended', 'pod', pod, 'pool', pool, 'calls', load, 'reason', 'awaiting_report',
    'silent_seconds', silent_seconds)
end

local result, left = {}, 0
local due = read_or_nil('ZRANGEBYSCORE', Key.reported_due, '-inf', digits(latest), 'WITHSCORES',
  'LIMIT', ARGV[3], ARGV[4]) or {}
for i = 1, #due, 2 do
  local pod, pool = due[i], home_of(due[i])
  local last = tonumber(call('ZSCORE', Key.reported, pod) or 0)
  -- Silence counts from `since`: a pod has its whole time again from then on.
  local is_silent = latest - since >= due[i + 1] - last and not text_at(Key.pod_suspended(pod))
  if not pool then
    call('ZREM', Key.reported_due, pod)
  elseif is_silent and not wrong_key(pod) and room_in(pool) > 0 then
    local silent_seconds = digits(math.floor((now - last) / 1000))
    block(pod, pool, silent_seconds)
    table.insert(result, { pod, pool, silent_seconds })
  else
    left = left + 1
  end
end
return { 'ok', #due / 2, left, unpack(result) }
