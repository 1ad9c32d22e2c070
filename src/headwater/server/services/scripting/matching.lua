-- find, match, gmatch and gsub of Lua 5.1, place by place, for patterns and subjects that may take
-- too long in C. Their results and errors are those of the C functions.
--
-- If a single attempt in C is short enough, and only the number of attempts is too large, C makes each
-- attempt; otherwise matcher.lua does.

local parse, set_first_bytes, growth, steps, matcher, charge, UNFINISHED = ...

local byte, concat, find, sub = string.byte, table.concat, string.find, string.sub
local error, select, tonumber, tostring, type = error, select, tonumber, tostring, type

local AT_END = -1
local ATTEMPT = 30000000 -- maximum steps of C in one attempt

local function behind_and_captures(first, last, ...)
    if first then
        return last + 1, ...
    end
end

-- Returns a function of a subject and a place: the first place from there on where a match may
-- begin, or nil.
local function skipping(items)
    local index = 1
    while items[index] and (items[index].kind == "open" or items[index].kind == "position") do
        index = index + 1
    end
    local item = items[index]
    if item and item.kind == "single" and (not item.quantifier or item.quantifier == "+") then
        local class = item.text
        if find(class, "^%p$") and class ~= "." then
            class = "%" .. class
        end
        return function(subject, place)
            local found = find(subject, class, place)
            charge((found or #subject) - place)
            return found
        end
    end
    local first = items[1] and items[1].first
    return function(subject, place)
        while first and not first[byte(subject, place) or AT_END] do
            place = place + 1
            if place > #subject + 1 then
                return nil
            end
        end
        return place
    end
end

-- Returns a function that tries to match at a place, and returns the place after the match and its
-- captures, or nil; and a function that skips places where no match begins.
local function attempts(subject, pattern)
    local items = set_first_bytes(parse(pattern))
    local whole = not (items[1] and items[#items].kind == "problem")
    for index = 1, items.captures do
        whole = whole and items.closed[index]
    end
    local power, doubles = growth(items)
    local most = steps(#pattern, power, doubles, #subject)
    if whole and most <= ATTEMPT then
        local anchored = "^" .. pattern
        return function(at)
            charge(most)
            return behind_and_captures(find(subject, anchored, at))
        end, skipping(items)
    end
    return matcher(items, subject), skipping(items)
end

-- Returns the first place from `at` on where the pattern matches, the place after the match, its
-- captures.
local function search(subject, attempt, skip, at, anchored)
    local function found(place, behind, ...)
        if behind then
            return place, behind, ...
        elseif anchored or place > #subject then
            return nil
        end
        place = skip(subject, place + 1)
        if place then
            return found(place, attempt(place))
        end
    end
    if not anchored then
        at = skip(subject, at)
    end
    if at then
        return found(at, attempt(at))
    end
end

local function finished(...)
    for index = 1, select("#", ...) do
        if select(index, ...) == UNFINISHED then
            error("unfinished capture", 0)
        end
    end
    return ...
end

local function without_anchor(pattern)
    if byte(pattern) == 94 then
        return sub(pattern, 2), true
    end
    return pattern, false
end

local slow = {}

-- Casts a number to a 64-bit integer as C does: out of range, the result is the least integer.
local function whole_number(number)
    if not (number > -2 ^ 63 and number < 2 ^ 63) then
        return -2 ^ 63
    end
    return number < 0 and -(-number - -number % 1) or number - number % 1
end

-- Returns the place where a search with `init` begins.
local function place_of(subject, init)
    init = init and whole_number(tonumber(init)) or 1
    if init < 0 then
        init = #subject + init + 1
    end
    if init < 1 then
        return 1
    end
    return init > #subject + 1 and #subject + 1 or init
end

local function positions(place, behind, ...)
    if place then
        return place, behind - 1, finished(...)
    end
    return nil
end

-- Searches a plain text, comparing `bytes` bytes at a time.
function slow.find_text(subject, text, init, bytes)
    local at, size = place_of(subject, init), #text
    local places = bytes / size - bytes / size % 1
    places = places < 1 and 1 or places
    while at + size - 1 <= #subject do
        charge(bytes)
        local first = find(sub(subject, at, at + places + size - 2), text, 1, true)
        if first then
            return at + first - 1, at + first + size - 2
        end
        at = at + places
    end
    return nil
end

function slow.find(subject, pattern, init)
    local text, anchored = without_anchor(pattern)
    local attempt, skip = attempts(subject, text)
    return positions(search(subject, attempt, skip, place_of(subject, init), anchored))
end

local function captured(subject, place, behind, ...)
    if not place then
        return nil
    elseif select("#", ...) == 0 then
        return sub(subject, place, behind - 1)
    end
    return finished(...)
end

function slow.match(subject, pattern, init)
    local text, anchored = without_anchor(pattern)
    local attempt, skip = attempts(subject, text)
    return captured(
        subject, search(subject, attempt, skip, place_of(subject, init), anchored)
    )
end

function slow.gmatch(subject, pattern)
    local attempt, skip = attempts(subject, pattern)
    local at = 1
    local function step(place, behind, ...)
        if not place then
            at = #subject + 2
            return nil
        end
        at = behind == place and behind + 1 or behind
        return captured(subject, place, behind, ...)
    end
    return function()
        if at > #subject + 1 then
            return nil
        end
        return step(search(subject, attempt, skip, at, false))
    end
end

-- Expands a replacement text: %0 to %9 are captures, % before any other byte is that byte.
local function expanded(replacement, whole, ...)
    local parts, at = {}, 1
    while true do
        local place = find(replacement, "%", at, true)
        if not place then
            parts[#parts + 1] = sub(replacement, at)
            return concat(parts)
        end
        parts[#parts + 1] = sub(replacement, at, place - 1)
        local one = byte(replacement, place + 1)
        if one == 48 or (one == 49 and select("#", ...) == 0) then
            parts[#parts + 1] = whole
        elseif one and one > 48 and one <= 57 then
            if one - 48 > select("#", ...) then
                error("invalid capture index", 0)
            end
            parts[#parts + 1] = finished((select(one - 48, ...)))
        else
            parts[#parts + 1] = one and sub(replacement, place + 1, place + 1) or "\0"
        end
        at = place + 2
    end
end

local function replaced(replacement, whole, ...)
    local kind, value = type(replacement), nil
    if kind == "string" then
        return expanded(replacement, whole, ...)
    elseif kind == "table" then
        if select("#", ...) == 0 then
            value = replacement[whole]
        else
            value = replacement[finished((...))]
        end
    elseif select("#", ...) == 0 then
        value = replacement(whole)
    else
        value = replacement(finished(...))
    end
    if not value then
        return whole
    elseif type(value) ~= "string" and type(value) ~= "number" then
        error("invalid replacement value (a " .. type(value) .. ")", 0)
    end
    return value
end

function slow.gsub(subject, pattern, replacement, most)
    if type(replacement) == "number" then
        replacement = tostring(replacement)
    end
    local text, anchored = without_anchor(pattern)
    local attempt, skip = attempts(subject, text)
    local parts, copied, at, count = {}, 1, 1, 0
    most = most and (whole_number(tonumber(most)) + 2 ^ 31) % 2 ^ 32 - 2 ^ 31 or #subject + 1 -- cast to C's int
    local function take(place, behind, ...)
        if not place then
            return false
        end
        count = count + 1
        parts[#parts + 1] = sub(subject, copied, place - 1)
        parts[#parts + 1] = replaced(replacement, sub(subject, place, behind - 1), ...)
        copied, at = behind, behind > place and behind or place + 1
        return not anchored and at <= #subject + 1
    end
    while count < most and take(search(subject, attempt, skip, at, anchored)) do
    end
    parts[#parts + 1] = sub(subject, copied)
    return concat(parts), count
end

return slow
