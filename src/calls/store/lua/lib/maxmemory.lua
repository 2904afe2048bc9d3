-- Lets the rest of the script pass when Redis is out of memory. At `maxmemory` Redis refuses commands that may take memory,
-- but only until the script has written: after one write of another kind the whole script is done. PERSIST is such a write,
-- and changes nothing here. Scripts that run for every call have no need of it: their first write is of that kind.
call('PERSIST', Key.pools)
