-- The configuration's own keys, which people also write by hand: one of another type counts as not there.
local function text_at(key)
  return call('TYPE', key).ok == 'string' and call('GET', key)
end

-- What is no whole number of at most 15 digits counts as 0: the next write begins anew from there.
local function tier_version()
  local version = tonumber(text_at(P .. 'tier:version') or 0) or 0
  if version ~= math.floor(version) or version < 0 or version >= 1e15 then return 0 end
  return version
end
