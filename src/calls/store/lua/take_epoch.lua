-- Starts a leader's term.
-- ARGV: 2 leader
-- Result: the new epoch, larger than every earlier one
--#include base counter maxmemory
allow_at_maxmemory()
local epoch = next_count(Key.leader_epoch)
event('leader_elected', 'leader', ARGV[2], 'epoch', epoch)
return epoch
