-- Writes or deletes the configuration of one merchant.
-- ARGV: 2 merchant id, 3 JSON ('' = delete), 4 actor ('' = the store has this text already, written by hand: only its limit
--       is applied), 5 most live calls ('' = no limit)
-- Result: {'ok'} | {'not_found'} (delete)
-- Guarantee: a limit counts the calls that are live when it is set; a limit below their number ends none of them. Waiting
-- calls that a higher limit allows get their pods in this step.
--#include base serve
local key, merchant, is_written, max = Key.merchant_config, ARGV[2], ARGV[3] ~= '', ARGV[5] or ''
local function add_event()
  event('merchant_changed', 'merchant', merchant, 'config', ARGV[3], 'by', ARGV[4])
end

-- The live calls of the merchant become members of its set.
local function count_live_calls()
  for _, pool in ipairs(read_or_nil('HKEYS', Key.pools) or {}) do
    for _, sid in ipairs(read_or_nil('ZRANGE', Key.pool_calls(pool), 0, -1) or {}) do
      local record = read_or_nil('HMGET', Key.call(sid), 'merchant_id', 'pod_name') or {}
      if record[1] == merchant and record[2] then
        write_or_skip('SADD', Key.limited(merchant), sid)
        call('HSET', Key.call(sid), 'limited', merchant)
      end
    end
  end
end

-- The event comes first: at maxmemory Redis refuses it before anything has changed.
if ARGV[4] == '' then
  if (read_or_nil('HGET', key, merchant) or '') ~= ARGV[3] then return { 'ok' } end
else
  if is_written then add_event() end
  -- An operator wrote a key of a wrong type: it is replaced.
  if call('TYPE', key).ok ~= 'hash' then call('DEL', key) end
  if is_written then
    call('HSET', key, merchant, ARGV[3])
  elseif call('HDEL', key, merchant) == 0 then
    return { 'not_found' }
  else
    add_event()
  end
end
if call('TYPE', Key.limits).ok ~= 'hash' then call('DEL', Key.limits) end
local before = call('HGET', Key.limits, merchant) or ''
if before == max then return { 'ok' } end
if ARGV[4] == '' then add_event() end -- the audit must know when a limit was lowered
if max == '' then
  call('HDEL', Key.limits, merchant)
  call('DEL', Key.limited(merchant))
else
  if before == '' then count_live_calls() end
  call('HSET', Key.limits, merchant, max)
end
serve_queue(merchant, true)
return { 'ok' }
