--#include maxmemory
-- True if this pool write comes from an older leader; a newer epoch than the stored one raises it.
local function is_stale(epoch)
  local stored = tonumber(text_at(Key.leader_epoch) or 0)
  if epoch < stored then return true end
  if epoch > stored then call('SET', Key.leader_epoch, digits(epoch)) end
  return false
end
