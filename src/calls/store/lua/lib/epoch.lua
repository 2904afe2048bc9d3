--#include maxmemory
-- True if this write comes from an older leader. Stores an epoch that is newer than the stored one. Text that an operator
-- wrote by hand and that is not a number below 9e15 (about 2^53) counts as missing: the next write of a leader replaces it.
local function is_stale(epoch)
  allow_at_maxmemory()
  local stored = tonumber(text_at(Key.leader_epoch))
  if not stored or not (stored < 9e15) then stored = 0 end
  if epoch < stored then return true end
  if epoch > stored then call('SET', Key.leader_epoch, digits(epoch)) end
  return false
end
