--#include overlay
-- The commands of `redis` on the overlay. Those of hashes, sets and sorted sets get the copy of their key.
local reads = {
  HGET = value_of, ZSCORE = value_of, HLEN = size, ZCARD = size, SCARD = size, SRANDMEMBER = sample,
  HEXISTS = function(...) return value_of(...) and 1 or 0 end,
  HMGET = function(copy, key, ...)
    local values = {}
    for i, field in ipairs({ ... }) do values[i] = value_of(copy, key, field) end
    return values
  end,
  ZRANGE = function(copy, key, from, to, has_scores)
    local count = from < 0 and -from or to < 0 and size(copy, key) or to + 1
    return entries(copy, key, '-inf', '+inf', count, from < 0, has_scores)
  end,
  ZRANGEBYSCORE = function(copy, key, min, max, ...)
    local options = { ... }
    return entries(copy, key, min, max, tonumber(options[#options]), false, options[1] == 'WITHSCORES')
  end,
  ZRANK = function(copy, key, member)
    local score = value_of(copy, key, member)
    if not score then return false end
    local rank = copy.is_new and 0 or store.call('ZCOUNT', key, '-inf', '(' .. score)
    for other, value in pairs(copy.values) do
      local before = not copy.is_new and store.call('ZSCORE', key, other)
      if before and tonumber(before) < tonumber(score) then rank = rank - 1 end
      if value and tonumber(value) < tonumber(score) then rank = rank + 1 end
    end
    return rank + place_of(copy, key, member, score)
  end,
}

local writes = {
  HDEL = remove, ZREM = remove, SREM = remove,
  HSET = function(copy, key, ...)
    local fields = { ... }
    for i = 1, #fields, 2 do put(copy, key, fields[i], text(fields[i + 1])) end
    return 1
  end,
  ZADD = function(copy, key, ...)
    local scores, added = { ... }, 0
    for i = 1, #scores, 2 do
      if not put(copy, key, scores[i + 1], text(tonumber(scores[i]))) then added = added + 1 end
    end
    return added
  end,
  SADD = function(copy, key, member) return put(copy, key, member, '1') and 0 or 1 end,
  SPOP = function(copy, key)
    local member = sample(copy, key, 1)[1]
    if member then put(copy, key, member, false) end
    return member or false
  end,
}

-- Expiry and events do not matter here.
local function skip() return 1 end

local function pass(name)
  return function(...) return store.pcall(name, ...) end
end

local others = {
  PEXPIRE = skip, PERSIST = skip, XADD = skip, GET = pass('GET'), ZINTER = pass('ZINTER'),
  SISMEMBER = pass('SISMEMBER'),
  TIME = function() return store.call('TIME') end,
  DEL = function(...)
    for _, key in ipairs({ ... }) do copies[key] = { is_new = true, values = {}, changes = 0, added = 0 } end
  end,
  EXISTS = function(key) return copies[key] and math.min(1, size(copies[key], key)) or store.call('EXISTS', key) end,
  MGET = function(...)
    local values = store.call('MGET', ...)
    for i, key in ipairs(next(copies) and { ... } or {}) do
      if copies[key] then values[i] = copies[key].text or false end
    end
    return values
  end,
}

function others.SET(key, value, option)
  local before = option == 'GET' and store.pcall('GET', key)
  if copies[key] then before = copies[key].text or false end
  if type(before) == 'table' then return before end
  copies[key] = { kind = 'string', text = text(value), is_new = true, values = {}, changes = 0, added = 1 }
  return option ~= 'GET' or before
end

local function run(name, key, ...)
  if others[name] then return others[name](key, ...) end
  if reads[name] and not copies[key] then return store.pcall(name, key, ...) end
  local copy = copy_of(key, KINDS[string.sub(name, 1, 1)])
  if not copy then return WRONG_TYPE end
  return (reads[name] or writes[name])(copy, key, ...)
end

local function run_or_raise(...)
  local reply = run(...)
  if type(reply) == 'table' and reply.err then error(reply.err) end
  return reply
end

local redis = { call = run_or_raise, pcall = run }
