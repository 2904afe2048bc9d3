--#include start
-- Key names and small helpers that nearly every script uses.
-- Numbers for the store are handed over as text: redis.call takes 0.6 us to write a number, `digits` 0.3, and
-- an argument that came as text costs nothing (in arithmetic Lua reads it as a number by itself).

-- Lua writes large numbers as 1.79e+15; the store needs all digits.
local function digits(number)
  return string.format('%.0f', number)
end

-- People write keys by hand, and now and then as another type. A text of another type counts as not there, as MGET has it.
local function text_at(key)
  return call('MGET', key)[1]
end

-- What a command reads, or nil where the key is of another type. Any other error stays one.
local function read_or_nil(...)
  local reply = redis.pcall(...)
  if type(reply) ~= 'table' or not reply.err then return reply end
  if string.find(reply.err, 'WRONGTYPE', 1, true) then return nil end
  return call(...)
end

-- Writes what can be written again: skipped (nil) where the key is of another type, so that the operation still ends whole.
local write_or_skip = read_or_nil

-- About 50,000 events are kept: at 100 calls a second some four minutes, at one more than six hours; 6 MB.
-- Every operation may write as often as there are calls: what is worth keeping longer goes through `event`.
local function note(kind, ...)
  return write_or_skip('XADD', Key.events, 'MAXLEN', '~', '50000', '*', 'type', kind, ...)
end

-- What is rare is kept a second time, under the same id, where calls that come and go do not push it out: about
-- 10,000 entries. The id is refused only where `events` was deleted and the clock went back; then it gets its own.
local function event(kind, ...)
  local id = note(kind, ...) or '*'
  local kept = redis.pcall('XADD', Key.journal, 'MAXLEN', '~', '10000', id, 'type', kind, ...)
  if type(kept) == 'table' and kept.err then
    write_or_skip('XADD', Key.journal, 'MAXLEN', '~', '10000', '*', 'type', kind, ...)
  end
end
