-- Says that a router reaches the store (lib/outage.lua), and begins a generation if the store is another master than before
-- (lib/generation.lua). Every replica runs it once a second, and first on every new connection.
-- ARGV: 2 'trust': a new generation marks no pod
-- Result: {now, generation ('' = unknown), pods marked (-1 = no generation began), why the replication id is unknown or ''}
-- Guarantee: only the first run against a replication id begins its generation.
--#include base maxmemory outage generation
allow_at_maxmemory()
local info = redis.pcall('INFO', 'replication')
local id = type(info) == 'string' and string.match(info, 'master_replid:(%x+)')
local known, generation = string.match(text_at(Key.generation) or '', '^(%x+) (%d+) %d+$')
local marked = -1
if id and id ~= known then
  generation, marked = begin_generation(id, known, generation, ARGV[2] == 'trust')
end
leases_end(true)
return { now, generation or '', marked, id and '' or info.err or 'INFO has no master_replid' }
