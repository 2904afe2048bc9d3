-- UIDs that a pod of this name had before, for pods that register by their own reports: nothing else says which of two
-- UIDs is the newer one. A late report of a predecessor must not replace the pod that replaced it.
local max_predecessors = 5

-- True while the registered pod reports: `uid` was replaced by it. After a minute of silence any UID may register.
local function is_predecessor(pod, uid, predecessors)
  if not string.find(' ' .. (predecessors or '') .. ' ', ' ' .. uid .. ' ', 1, true) then return false end
  return now - tonumber(read_or_nil('ZSCORE', Key.reported, pod) or 0) < 60000
end

local function note_predecessor(pod, uid, predecessors)
  local uids = { uid }
  for older in string.gmatch(predecessors or '', '%S+') do
    if older ~= uid and #uids < max_predecessors then table.insert(uids, older) end
  end
  call('HSET', Key.pod(pod), 'predecessors', table.concat(uids, ' '))
end
