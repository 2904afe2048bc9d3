-- Milliseconds since 1970 as ISO 8601. Scripts have no date library; operators read these fields.
local function iso(ms)
  local floor = math.floor
  local rest = ms % 86400000
  local z = (ms - rest) / 86400000 + 719468
  local doe = z % 146097
  local yoe = floor((doe - floor(doe / 1460) + floor(doe / 36524) - floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + floor(yoe / 4) - floor(yoe / 100))
  local mp = floor((5 * doy + 2) / 153)
  local day = doy - floor((153 * mp + 2) / 5) + 1
  local month = mp < 10 and mp + 3 or mp - 9
  local year = yoe + (z - doe) / 146097 * 400 + (month <= 2 and 1 or 0)
  -- %d drops the fraction.
  return string.format('%04d-%02d-%02dT%02d:%02d:%02d.%03dZ', year, month, day,
    rest / 3600000, rest / 60000 % 60, rest / 1000 % 60, rest % 1000)
end
