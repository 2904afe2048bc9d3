-- Remembers ended calls for the report grace: one hash per four seconds, SID to deadline. One key per call took 1.7 instead
-- of 1.2 to 1.4 MB for 10,000 ended calls, filled the keyspace that operators scan, and was not faster (51 us for an
-- allocate and release either way).
local function leave_tombstone(sid, grace)
  local key = Key.tombstones(math.floor(now / TOMBSTONE_SLICE_MS))
  write_or_skip('HSET', key, sid, digits(now + grace))
  call('PEXPIRE', key, grace)
end

-- The calls of a list that ended within the grace, as a set: they must not be adopted. Reads 1,000 at a time, as a report may
-- name 10,000 and Lua passes at most 8,000 values.
local function ended_lately(sids, grace)
  local found = {}
  for slot = math.floor(now / TOMBSTONE_SLICE_MS), math.floor((now - grace) / TOMBSTONE_SLICE_MS), -1 do
    for first = 1, #sids, 1000 do
      local last = math.min(first + 999, #sids)
      for i, till in ipairs(read_or_nil('HMGET', Key.tombstones(slot), unpack(sids, first, last)) or {}) do
        if (tonumber(till) or 0) > now then found[sids[first + i - 1]] = true end
      end
    end
  end
  return found
end
