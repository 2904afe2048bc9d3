-- One live call.
-- ARGV: 2 sid
-- Result: {'ok', {sid, deadline, field, value...}} | {'not_found'}
--#include base
local row = call('HGETALL', call_key(ARGV[2]))
local pod = call('HGET', call_key(ARGV[2]), 'pod_name')
local deadline = pod and call('ZSCORE', pod_calls_key(pod), ARGV[2])
if not deadline then return { 'not_found' } end
table.insert(row, 1, ARGV[2])
table.insert(row, 2, deadline)
return { 'ok', row }
