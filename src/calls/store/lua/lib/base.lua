--#include start
-- Small helpers that nearly every script uses.
-- Numbers are passed to the store as text: redis.call takes 0.6 us to format a number, `digits` 0.3 us, and an argument that
-- arrived as text costs nothing (Lua arithmetic converts it).

-- Lua formats large numbers as 1.79e+15; the store needs all digits.
local function digits(number)
  return string.format('%.0f', number)
end

-- The string at a key, or false. An operator may have written the key by hand as another type: MGET reads that as missing.
local function text_at(key)
  return call('MGET', key)[1]
end

-- The reply of a command, or nil if the key has a wrong type. Raises every other error.
local function read_or_nil(...)
  local reply = redis.pcall(...)
  if type(reply) ~= 'table' or not reply.err then return reply end
  if string.find(reply.err, 'WRONGTYPE', 1, true) then return nil end
  return call(...)
end

-- For derived keys, which the sweep rebuilds: skips the write (nil) if the key has a wrong type, so that the script completes.
local write_or_skip = read_or_nil

-- Adds an event. For events as frequent as calls; rarer ones go through `event`.
local function note(kind, ...)
  return write_or_skip('XADD', Key.events, 'MAXLEN', '~', EVENTS_MAX, '*', 'type', kind, ...)
end

local JOURNAL_MAX = '10000'

-- Adds a rare event to `events` and, under the same id, to `journal`, where frequent events do not
-- displace it. The journal refuses the id only if `events` was deleted and the clock was set back; it then gets its own.
local function event(kind, ...)
  local id = note(kind, ...) or '*'
  local kept = redis.pcall('XADD', Key.journal, 'MAXLEN', '~', JOURNAL_MAX, id, 'type', kind, ...)
  if type(kept) == 'table' and kept.err then
    write_or_skip('XADD', Key.journal, 'MAXLEN', '~', JOURNAL_MAX, '*', 'type', kind, ...)
  end
end
