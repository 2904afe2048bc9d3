-- Calls whose release a failover lost.

local generation_began_at

-- When the generation of the store began (lib/generation.lua), or infinity.
local function generation_began()
  generation_began_at = generation_began_at
    or tonumber(string.match(text_at(Key.generation) or '', '^%x+ %d+ (%d+)$')) or math.huge
  return generation_began_at
end

-- True if a call that the pod has and the store lost finds no place beside the calls that the store has.
local function finds_no_place(unknown, own, over, waited, free)
  local lost = 0
  for _, sid in ipairs(unknown) do
    if not own[sid] and (waited[sid] or not over[sid]) then lost = lost + 1 end
  end
  return lost > 0 and lost > free
end

-- True if the call has ended although the store has it: it is older than the generation, its pod confirmed it, and a second
-- report written since the generation began omits it. `omitted_at`: when the first of them was written. `is_full`: the first
-- one is enough, because the pod has another call in its place, which would be cut.
local function lost_release(sid, as_of, fence, renewed_at, omitted_at, is_full)
  if not as_of or not renewed_at or as_of < generation_began() then return false end
  if (tonumber(fence) or math.huge) / 1000 >= generation_began() then return false end
  local first = tonumber(omitted_at) or 0
  if first < generation_began() then call('HSET', Key.call(sid), 'omitted_at', digits(as_of)) end
  return is_full or first >= generation_began() and as_of > first
end
