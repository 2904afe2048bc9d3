-- Writes or deletes the configuration of one merchant.
-- ARGV: 2 merchant id, 3 JSON ('' = delete), 4 actor
-- Result: {'ok'} | {'not_found'} (delete)
--#include base
local key, is_written = Key.merchant_config, ARGV[3] ~= ''
local function add_event()
  event('merchant_changed', 'merchant', ARGV[2], 'config', ARGV[3], 'by', ARGV[4])
end
-- The event comes first: at maxmemory Redis refuses it before anything has changed.
if is_written then add_event() end
-- An operator wrote a key of a wrong type: it is replaced.
if call('TYPE', key).ok ~= 'hash' then call('DEL', key) end
if is_written then
  call('HSET', key, ARGV[2], ARGV[3])
elseif call('HDEL', key, ARGV[2]) == 0 then
  return { 'not_found' }
else
  add_event()
end
return { 'ok' }
