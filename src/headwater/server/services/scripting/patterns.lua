-- Parses patterns of Lua 5.1, and estimates the number of steps that C may need for them.
--
-- C's matcher backtracks: a quantifier tries each length, and for each of them everything after it.
-- So a pattern with k quantifiers takes up to n^k steps over n bytes, and no hook checks the clock
-- meanwhile. An upper bound of the steps is computed in advance. If it is too high, matcher.lua
-- matches the pattern.
--
-- Source: Lua 5.1.5, lstrlib.c.

local byte, char, find, gsub, match, sub = string.byte, string.char, string.find, string.gsub,
    string.match, string.sub
local error, next, pairs, select = error, next, pairs, select

local CAPTURES = 32 -- Precedent: LUA_MAXCAPTURES
local CLASSES = 200 -- maximum number of classes in the cache
local AT_END = -1 -- in a set of bytes that may follow: the end of the subject

local QUANTIFIERS = { ["*"] = "*", ["+"] = "+", ["-"] = "-", ["?"] = "?" }

-- Returns the set of bytes in a class; `text` is the class of one byte in a pattern: a letter, %a,
-- [^x].
local classes, class_count = {}, 0

local function class_of(text)
    local set = classes[text]
    if set then
        return set
    end
    set = {}
    if #text == 1 and text ~= "." then
        set[byte(text)] = true
    else
        for number = 0, 255 do
            if find(char(number), "^" .. text) then
                set[number] = true
            end
        end
    end
    if #text <= 100 then
        if class_count >= CLASSES then
            classes, class_count = {}, 0
        end
        classes[text], class_count = set, class_count + 1
    end
    return set
end

-- Returns the end of the class that begins at `at`, or nil and a description of the problem.
local function class_end(pattern, at)
    local first = sub(pattern, at, at)
    if first == "%" then
        if at == #pattern then
            return nil, "malformed pattern (ends with '%')"
        end
        return at + 1
    elseif first ~= "[" then
        return at
    end
    at = at + 1
    if sub(pattern, at, at) == "^" then
        at = at + 1
    end
    repeat -- the first byte belongs to the class even if it is a bracket
        local one = sub(pattern, at, at)
        if one == "" then
            return nil, "malformed pattern (missing ']')"
        end
        at = at + 1
        if one == "%" and at <= #pattern then
            at = at + 1
        end
    until sub(pattern, at, at) == "]"
    return at
end

local function problem(items, text)
    items[#items + 1] = { kind = "problem", text = text }
end

-- Parses an item at `at` that is not a class of one byte. Returns its last place, false after a
-- problem, nil if it is a class.
local function special(items, pattern, at)
    local one = sub(pattern, at, at)
    local open = items.open
    if one == "(" then
        if items.captures == CAPTURES then
            return problem(items, "too many captures") or false
        end
        items.captures = items.captures + 1
        local position = sub(pattern, at + 1, at + 1) == ")"
        items[#items + 1] = { kind = position and "position" or "open", index = items.captures }
        if not position then
            open[#open + 1] = items.captures
        end
        items.closed[items.captures] = position
        return position and at + 1 or at
    elseif one == ")" then
        local index = open[#open]
        if not index then
            return problem(items, "invalid pattern capture") or false
        end
        open[#open], items.closed[index] = nil, true
        items[#items + 1] = { kind = "close", index = index }
        return at
    elseif one == "$" and at == #pattern then
        items[#items + 1] = { kind = "end" }
        return at
    elseif one ~= "%" then
        return nil
    end
    local two = sub(pattern, at + 1, at + 1)
    if two == "b" then
        if at + 3 > #pattern then
            return problem(items, "unbalanced pattern") or false
        end
        items[#items + 1] = { kind = "balance", text = sub(pattern, at, at + 3) }
        return at + 3
    elseif two == "f" then
        if sub(pattern, at + 2, at + 2) ~= "[" then
            return problem(items, "missing '[' after '%f' in pattern") or false
        end
        local last, text = class_end(pattern, at + 2)
        if not last then
            return problem(items, text) or false
        end
        items[#items + 1] = { kind = "frontier", text = sub(pattern, at + 2, last) }
        return last
    elseif match(two, "^%d") then
        local index = byte(two) - 48
        if not items.closed[index] then
            return problem(items, "invalid capture index") or false
        end
        items[#items + 1] = { kind = "back", index = index }
        return at + 1
    end
end

-- Parses a pattern without the ^ that anchors it. An item that C rejects is a problem, and ends the
-- pattern: C reports it only when the match gets there.
local function parse(pattern)
    local items = { captures = 0, closed = {}, open = {} }
    pattern = match(pattern, "^[^%z]*") -- it ends at its first NUL, as in C
    local at = 1
    while at <= #pattern do
        local last = special(items, pattern, at)
        if last == false then
            break
        elseif last == nil then
            local text
            last, text = class_end(pattern, at)
            if not last then
                problem(items, text)
                break
            end
            local item = { kind = "single", text = sub(pattern, at, last) }
            item.quantifier = QUANTIFIERS[sub(pattern, last + 1, last + 1)]
            if item.quantifier then
                last = last + 1
            end
            items[#items + 1] = item
        end
        at = last + 1
    end
    return items
end

-- Sets for each item the bytes (and `AT_END`) that can come where it begins, if that is known.
local function set_first_bytes(items)
    local follow = nil
    for index = #items, 1, -1 do
        local item = items[index]
        item.follow = follow
        if item.kind == "single" then
            local set = class_of(item.text)
            item.set = set
            if item.quantifier == nil or item.quantifier == "+" then
                follow = set
            elseif follow then
                local both = {}
                for one in pairs(set) do both[one] = true end
                for one in pairs(follow) do both[one] = true end
                follow = both
            end
        elseif item.kind == "balance" then
            follow = { [byte(item.text, 3)] = true }
        elseif item.kind == "end" then
            follow = { [AT_END] = true }
        elseif item.kind == "frontier" then
            item.set = class_of(item.text)
            follow = nil
        elseif item.kind == "back" or item.kind == "problem" then
            follow = nil
        end
        item.first = follow
    end
    return items
end

local function overlap(set, follow)
    if not follow then
        return true
    end
    for one in next, set do
        if follow[one] then
            return true
        end
    end
    return false
end

-- Returns the growth of the number of steps: the `power` of the subject's length, and `doubles`,
-- the power of two. A quantifier whose bytes cannot come after it has a single length that can lead
-- to a match.
local function growth(items)
    local power, doubles, scans = 0, 0, 0
    for index = 1, #items do
        local item = items[index]
        if item.kind == "balance" or item.kind == "back" then
            scans = 1
        elseif item.quantifier == "?" then
            doubles = doubles + (overlap(item.set, item.follow) and 1 or 0)
        elseif item.quantifier then
            scans = 1
            power = power + (overlap(item.set, item.follow) and 1 or 0)
        end
    end
    return power + scans, doubles
end

-- Returns upper bounds of these two numbers for a pattern that is not parsed.
local function coarse_growth(pattern)
    local power, doubles = select(2, gsub(pattern, "[*+-]", "")), select(2, gsub(pattern, "?", ""))
    if find(pattern, "%%[b%d]") then
        power = power + select(2, gsub(pattern, "%%[b%d]", ""))
    end
    return power, doubles
end

-- Returns the maximum number of C's steps over `length` bytes: every choice of `power` places in them.
local function steps(weight, power, doubles, length)
    local count = weight * 2 ^ doubles
    for index = 1, power do
        count = count * (length + index) / index
        if count > 1e18 then
            break
        end
    end
    return count
end

return parse, set_first_bytes, growth, coarse_growth, steps
