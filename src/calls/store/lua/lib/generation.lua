--#include base settle unreadable
-- A generation is the time of one master, known by its replication id. Another id means that a replica was promoted or the
-- server was restarted: writes that the store had acknowledged may be lost. A pod that looks free may then have a call.
-- `generation` has 'replication id, number, began (ms)'. The number grows and is never used twice, although its last write
-- may be lost, too: it is at least the clock in seconds.

-- A pod that reports did so within this time before the last stamp of a router: later none could.
local REPORTS_MS = 120000

-- Blocks a pod until it has reported (unblock_reporter in lib/silence.lua); its calls stay. A pod that is suspended for
-- another reason keeps that reason, and must report after it. Returns 1, or 0 if there is no such pod.
local function mark(pod)
  if not home_of(pod) or set_aside(pod) then return 0 end
  call('HSET', Key.pod(pod), 'must_report', digits(now))
  local suspended = text_at(Key.pod_suspended(pod))
  if not suspended or suspended == 'flapping' then call('SET', Key.pod_suspended(pod), 'awaiting_report') end
  settle(pod)
  return 1
end

-- Begins a generation and marks the pods that report. `known`: the former replication id; without it (first start, data lost)
-- there is nothing to distrust. One step for all pods: 69 ms for 5,000 (Redis 7).
local function begin_generation(id, known, generation, trusts)
  local number = digits(math.max((tonumber(generation) or 0) + 1, math.floor(now / 1000)))
  call('SET', Key.generation, id .. ' ' .. number .. ' ' .. digits(now))
  if not known then return number, -1 end
  local stamped = tonumber(string.match(text_at(Key.alive) or '', '^%d+')) or now
  local since, marked = digits(math.min(now, stamped) - REPORTS_MS), 0
  for _, pod in ipairs(trusts and {} or read_or_nil('ZRANGEBYSCORE', Key.reported, since, '+inf') or {}) do
    marked = marked + mark(pod)
  end
  event('generation_began', 'generation', number, 'pods', marked)
  return number, marked
end
