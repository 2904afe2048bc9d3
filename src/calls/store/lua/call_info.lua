-- Reads one live call.
-- ARGV: 2 sid
-- Result: {'ok', {sid, deadline, field, value...}} | {'not_found'}
--#include base
local row = call('HGETALL', Key.call(ARGV[2]))
local pod = call('HGET', Key.call(ARGV[2]), 'pod_name')
local deadline = pod and call('ZSCORE', Key.pod_calls(pod), ARGV[2])
if not deadline then return { 'not_found' } end
table.insert(row, 1, ARGV[2])
table.insert(row, 2, deadline)
return { 'ok', row }
