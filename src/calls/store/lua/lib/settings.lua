-- The configuration's own keys. What is no whole number of at most 15 digits counts as 0: the next write begins anew from there.
local function tier_version()
  local text = text_at(Key.tier_version) or ''
  return #text <= 15 and string.match(text, '^%d+$') and tonumber(text) or 0
end
