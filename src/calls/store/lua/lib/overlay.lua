-- Replaces `redis` for everything that is included after this file: scripts run unchanged, and the store is not written. Writes
-- are kept in `copies`, where later reads see them. Of a key that was written, only the members that differ are kept, so a
-- large key costs no more than a small one. A command that is missing here raises an error: none reaches the store unknown.
local store, copies = redis, {}
local WRONG_TYPE = { err = 'WRONGTYPE Operation against a key holding the wrong kind of value' }
local KINDS = { H = 'hash', Z = 'zset', S = 'set' }
local SIZES = { hash = 'HLEN', zset = 'ZCARD', set = 'SCARD' }
local GETTERS = { hash = 'HGET', zset = 'ZSCORE', set = 'SISMEMBER' }

local function text(value)
  return type(value) == 'number' and string.format('%.17g', value) or value
end

-- `is_new`: the store's value does not count. `changes`: members in `values`. `added`: by how much the size differs.
local function copy_of(key, kind)
  if not copies[key] then
    local found = store.call('TYPE', key).ok
    local is_new = found == 'none'
    copies[key] = { kind = is_new and kind or found, is_new = is_new, values = {}, changes = 0, added = 0 }
  end
  local copy = copies[key]
  copy.kind = copy.kind or kind -- a deleted key has no type
  return copy.kind == kind and copy or nil
end

local function value_of(copy, key, member)
  local value = copy.values[member]
  if value ~= nil then return value end
  value = not copy.is_new and store.call(GETTERS[copy.kind], key, member)
  return value ~= 0 and value
end

-- `value`: false removes the member. Returns the value before.
local function put(copy, key, member, value)
  local before = value_of(copy, key, member)
  if copy.values[member] == nil then copy.changes = copy.changes + 1 end
  copy.values[member] = value
  copy.added = copy.added + (value and 1 or 0) - (before and 1 or 0)
  return before
end

local function remove(copy, key, ...)
  local removed = 0
  for _, member in ipairs({ ... }) do
    if put(copy, key, member, false) then removed = removed + 1 end
  end
  return removed
end

-- Of a key that no script writes (a wrong type): 1, it exists.
local function size(copy, key)
  return (copy.is_new and 0 or store.call(SIZES[copy.kind] or 'EXISTS', key)) + copy.added
end

-- At most `max` members of a set, in no order.
local function sample(copy, key, max)
  local found = {}
  for _, member in ipairs(copy.is_new and {} or store.call('SRANDMEMBER', key, max + copy.changes)) do
    if copy.values[member] == nil and #found < max then table.insert(found, member) end
  end
  for member, value in pairs(copy.values) do
    if value and #found < max then table.insert(found, member) end
  end
  return found
end

-- The first `count` entries of a sorted set with a score between `min` and `max` ('(' = less than), or the last ones.
local function entries(copy, key, min, max, count, is_last, has_scores)
  local found, range = {}, { 'ZRANGEBYSCORE', key, min, max }
  if is_last then range = { 'ZREVRANGEBYSCORE', key, max, min } end
  for _, option in ipairs({ 'WITHSCORES', 'LIMIT', 0, count + copy.changes }) do table.insert(range, option) end
  local stored = copy.is_new and {} or store.call(unpack(range))
  for i = 1, #stored, 2 do
    if copy.values[stored[i]] == nil then table.insert(found, { stored[i], tonumber(stored[i + 1]) }) end
  end
  local low, high = tonumber(min) or -math.huge, tonumber((string.gsub(max, '^%(', ''))) or math.huge
  for member, value in pairs(copy.values) do
    local score = tonumber(value or nil)
    local is_below = score and (score < high or score == high and string.sub(max, 1, 1) ~= '(')
    if is_below and score >= low then table.insert(found, { member, score }) end
  end
  table.sort(found, function(a, b)
    if a[2] == b[2] then return a[1] < b[1] end
    return a[2] < b[2]
  end)
  local result = {}
  for i = is_last and math.max(1, #found - count + 1) or 1, is_last and #found or math.min(count, #found) do
    table.insert(result, found[i][1])
    if has_scores then table.insert(result, text(found[i][2])) end
  end
  return result
end

-- The place of a member among those with its score, from 0: as in the store, they are ordered by their names.
local function place_of(copy, key, member, score)
  for place, found in ipairs(entries(copy, key, score, score, size(copy, key))) do
    if found == member then return place - 1 end
  end
end
