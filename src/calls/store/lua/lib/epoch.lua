--#include maxmemory
-- True if this write comes from an older leader. Stores an epoch that is newer than the stored one.
local function is_stale(epoch)
  allow_at_maxmemory()
  local stored = tonumber(text_at(Key.leader_epoch) or 0)
  if epoch < stored then return true end
  if epoch > stored then call('SET', Key.leader_epoch, digits(epoch)) end
  return false
end
