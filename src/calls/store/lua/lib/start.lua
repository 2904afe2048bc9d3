-- What every script starts with. KEYS[1] is the key prefix (one key, so that a Cluster finds the slot);
-- ARGV[1] is the time in microseconds for tests, or '' for the store's own clock.
local P = KEYS[1]
local call = redis.call
local now_us = tonumber(ARGV[1])
if not now_us then
  local time = call('TIME')
  now_us = time[1] * 1000000 + time[2]
end
local now = math.floor(now_us / 1000)
