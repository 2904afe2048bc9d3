-- Writes the leader's record if it is still the one that the caller read.
-- ARGV: 2 version ('' = there must be no record), 3 holder ('' = released), 4 writer, 5 duration ms, 6 acquired at,
--       7 renewed at, 8 transitions
-- Result: the new version, larger than every earlier one, also after a flush | '' = another writer was faster
-- Guarantee: one writer per version. A key of a wrong type counts as no record and is overwritten.
--#include base maxmemory
local key = Key.leader
local read = read_or_nil('HMGET', key, 'version')
local stored = read and read[1] or ''
if stored ~= ARGV[2] then return '' end
allow_at_maxmemory()
if not read then call('DEL', key) end
local before = tonumber(stored)
local version = digits(before and before >= now_us and before < 9e15 and before + 1 or now_us)
call('HSET', key, 'version', version, 'holder', ARGV[3], 'writer', ARGV[4], 'duration_ms', ARGV[5],
  'acquired_at', ARGV[6], 'renewed_at', ARGV[7], 'transitions', ARGV[8])
return version
