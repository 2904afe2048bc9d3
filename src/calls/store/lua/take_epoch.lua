-- Starts a leader's term.
-- Result: the new epoch, larger than every earlier one
--#include base
--#include counter
return next_count(P .. 'leader:epoch')
