-- Lets the rest of the script write although Redis is at `maxmemory`. Redis then refuses commands that may take memory, but
-- only until the script has written: PERSIST is a write that takes none, and changes nothing here. Scripts that run for
-- every call do without: their first write is of that kind.
local function allow_at_maxmemory()
  call('PERSIST', Key.pools)
end
