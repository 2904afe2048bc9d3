-- Starts every script. KEYS[1] is the key prefix (one key, so that a Cluster finds the slot); ARGV[1] is the time in
-- microseconds for tests, or '' for the store's clock. `Key.name(value)` is a key of key-table.mjs. `us` is the time as text:
-- to format so large a number takes 0.3 us.
local P, call = KEYS[1], redis.call
-- `events` keeps about 50,000 entries: at 100 calls a second some four minutes, at one more than six hours; 6 MB.
local EVENTS_MAX, TOMBSTONE_SLICE_MS = '50000', 4000
local us = ARGV[1]
if us == '' then
  local time = call('TIME')
  us = time[1] .. string.format('%06d', time[2])
end
local now_us = tonumber(us)
local now = math.floor(now_us / 1000)
