-- An operator's word that the pods held by the removal brake are really gone: the leader removes them in its next round.
-- ARGV: 2 who says so
-- Result: how many are held
--#include base
--#include maxmemory
-- SUNIONSTORE writes over a key of another type; one that it reads holds no pods.
local held = write_or_skip('SUNIONSTORE', Key.removals_confirmed, Key.removals_held) or 0
if held > 0 then event('removals_confirmed', 'pods', held, 'by', ARGV[2]) end
return held
