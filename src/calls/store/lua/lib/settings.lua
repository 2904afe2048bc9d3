-- The version of the tier configuration. Any other text than a whole number of at most 15 digits counts as 0.
local function tier_version()
  local text = text_at(Key.tier_version) or ''
  return #text <= 15 and string.match(text, '^%d+$') and tonumber(text) or 0
end
