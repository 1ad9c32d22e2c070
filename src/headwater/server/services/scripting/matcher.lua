-- Matches Lua 5.1's patterns in Lua, where the clock is checked: for patterns whose matching may
-- take too long in C (patterns.lua).
--
-- An item is a function of the place where it begins. It calls the next item and returns the place
-- after the whole match, or nil. Alternatives are tried in C's order: a longer run before a shorter
-- one, and for `-` a shorter one first. C still finds the runs of bytes of one class, which takes
-- little time.

local host = ...

local byte, find, sub = string.byte, string.find, string.sub
local error = error

local STEPS = 1000000 -- charged, between two checks of the clock
local AT_END = -1
local UNFINISHED = {} -- a capture that was not closed

local spent = 0

-- Charges steps of C, which the hook does not count. After the time limit the count remains, so
-- that a script that catches the error is stopped at its next step.
local function charge(steps)
    spent = spent + steps
    if spent > STEPS then
        if host.expired() then
            error({ err = host.timeout }, 0)
        end
        spent = 0
    end
end

local make = {}

function make.single(item, rest, state)
    local set, follow = item.set, item.follow
    local quantifier = item.quantifier
    if not quantifier then
        return function(at)
            if set[byte(state.subject, at)] then
                return rest(at + 1)
            end
        end
    elseif quantifier == "?" then
        return function(at)
            if set[byte(state.subject, at)] then
                local found = rest(at + 1)
                if found then
                    return found
                end
            end
            return rest(at)
        end
    elseif quantifier == "-" then
        return function(at)
            local subject = state.subject
            while true do
                local one = byte(subject, at)
                if not follow or follow[one or AT_END] then
                    local found = rest(at)
                    if found then
                        return found
                    end
                end
                if not set[one] then
                    return nil
                end
                at = at + 1
            end
        end
    end
    local run, least = "^" .. item.text .. "*", quantifier == "+" and 1 or 0
    return function(at)
        local subject = state.subject
        local _, last = find(subject, run, at)
        charge(last - at)
        for place = last + 1, at + least, -1 do
            if not follow or follow[byte(subject, place) or AT_END] then
                local found = rest(place)
                if found then
                    return found
                end
            end
        end
    end
end

local function opened(item, rest, state)
    local index, first = item.index, state.first
    return function(at)
        first[index] = at
        return rest(at)
    end
end

make.open, make.position = opened, opened

function make.close(item, rest, state)
    local index, last = item.index, state.last
    return function(at)
        last[index] = at
        return rest(at)
    end
end

make["end"] = function(_, rest, state)
    return function(at)
        if at > #state.subject then
            return rest(at)
        end
    end
end

function make.balance(item, rest, state)
    local pattern, first = "^" .. item.text, byte(item.text, 3)
    return function(at)
        local subject = state.subject
        if byte(subject, at) ~= first then
            return nil
        end
        local _, last = find(subject, pattern, at)
        charge((last or #subject) - at)
        if last then
            return rest(last + 1)
        end
    end
end

function make.frontier(item, rest, state)
    local set = item.set
    return function(at)
        local subject = state.subject
        local before = at > 1 and byte(subject, at - 1) or 0
        if not set[before] and set[byte(subject, at) or 0] then
            return rest(at)
        end
    end
end

function make.back(item, rest, state)
    local index, first, last = item.index, state.first, state.last
    return function(at)
        if not last[index] then
            return nil -- a position capture is not a text
        end
        local size = last[index] - first[index]
        charge(size)
        local subject = state.subject
        if sub(subject, at, at + size - 1) == sub(subject, first[index], last[index] - 1) then
            return rest(at + size)
        end
    end
end

function make.problem(item)
    return function()
        error(item.text, 0)
    end
end

-- Returns a function for a pattern that patterns.lua has parsed. The function takes a place and
-- returns the place after the match that begins there, and its captures; nil if there is no match.
local function matcher(items, subject)
    local state = { subject = subject, first = {}, last = {} }
    local first, last = state.first, state.last
    for index = 1, items.captures do
        if not items.closed[index] then
            last[index] = UNFINISHED
        end
    end
    local match = function(at)
        return at
    end
    for index = #items, 1, -1 do
        match = make[items[index].kind](items[index], match, state)
    end
    local function captures(index)
        if index > items.captures then
            return
        end
        local behind = last[index]
        if behind == UNFINISHED then
            return UNFINISHED, captures(index + 1)
        end
        local value = behind and sub(subject, first[index], behind - 1) or first[index]
        return value, captures(index + 1)
    end
    return function(at)
        local behind = match(at)
        if behind then
            return behind, captures(1)
        end
    end
end

return matcher, charge, UNFINISHED
