-- Ended calls, remembered for the report grace: a hash for every four seconds, sid to deadline. A key for each
-- call would be simpler, but at thousands of calls a second those keys outnumber all others a hundred times, and
-- every lookup in the store pays for it (measured: 10 % of an allocate and release).
local slice = 4000

local function tombstones_key(slot)
  return P .. 'tombstones:' .. slot
end

local function leave_tombstone(sid, grace)
  local key = tombstones_key(math.floor(now / slice))
  call('HSET', key, sid, digits(now + grace))
  call('PEXPIRE', key, grace)
end

local function has_tombstone(sid, grace)
  for slot = math.floor(now / slice), math.floor((now - grace) / slice), -1 do
    if tonumber(call('HGET', tombstones_key(slot), sid) or 0) > now then return true end
  end
  return false
end
