-- Confirms that the pods held by the removal brake no longer exist: the leader removes them in its next round.
-- ARGV: 2 who confirms
-- Result: number of pods held
--#include base maxmemory
allow_at_maxmemory()
-- SUNIONSTORE overwrites a target of a wrong type; a source of a wrong type holds no pods.
local held = write_or_skip('SUNIONSTORE', Key.removals_confirmed, Key.removals_held) or 0
if held > 0 then event('removals_confirmed', 'pods', held, 'by', ARGV[2]) end
return held
