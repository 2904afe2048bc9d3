-- Says that a router reaches the store. Every replica runs it once a second; see lib/outage.lua.
-- Result: now
--#include base maxmemory outage
allow_at_maxmemory()
leases_end(true)
return now
