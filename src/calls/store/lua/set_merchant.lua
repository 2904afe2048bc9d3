-- Writes or deletes one merchant's configuration.
-- ARGV: 2 merchant id, 3 JSON ('' = delete), 4 who
-- Result: {'ok'} | {'not_found'} (delete)
--#include base
local key = P .. 'merchant:config'
-- Written by hand as something else: nothing in it can be read.
if call('TYPE', key).ok ~= 'hash' then call('DEL', key) end
if ARGV[3] == '' then
  if call('HDEL', key, ARGV[2]) == 0 then return { 'not_found' } end
else
  call('HSET', key, ARGV[2], ARGV[3])
end
event('merchant_changed', 'merchant', ARGV[2], 'config', ARGV[3], 'by', ARGV[4])
return { 'ok' }
