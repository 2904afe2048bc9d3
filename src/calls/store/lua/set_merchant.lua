-- Writes or deletes one merchant's configuration.
-- ARGV: 2 merchant id, 3 JSON ('' = delete), 4 who
-- Result: {'ok'} | {'not_found'} (delete)
--#include base
local key, is_written = Key.merchant_config, ARGV[3] ~= ''
local function tell()
  event('merchant_changed', 'merchant', ARGV[2], 'config', ARGV[3], 'by', ARGV[4])
end
-- The event first: when Redis is out of memory, it is refused before anything is changed.
if is_written then tell() end
-- Written by hand as something else: nothing in it can be read.
if call('TYPE', key).ok ~= 'hash' then call('DEL', key) end
if is_written then
  call('HSET', key, ARGV[2], ARGV[3])
elseif call('HDEL', key, ARGV[2]) == 0 then
  return { 'not_found' }
else
  tell()
end
return { 'ok' }
