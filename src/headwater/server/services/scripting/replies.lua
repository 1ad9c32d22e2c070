-- Converts replies of the server to values for a script, and the value of a script to a reply: the
-- Lua part of values.py. Between the two, a value is a list of words; `true` begins a value of more
-- than one word.
--
-- No function of the script is called here: tables are read past their metatables.

local MAX_DEPTH = 200 -- maximum depth of nested tables. Precedent: Redis, the C stack of Lua (LUAI_MAXCSTACK).
local TABLES = 1000 -- number of tables between two checks of the clock

local host = ...

local error, gcinfo, next, rawget, type = error, gcinfo, next, rawget, type
local format = string.format

local named = { ok = true, err = true, double = true, big_number = true }

-- Returns the value whose words begin at `at`, and the start of the next one.
local function value_of(words, at)
    local word = words[at]
    if word ~= true then
        return word, at + 1
    end
    local kind, made = words[at + 1], {}
    at = at + 2
    if named[kind] then
        return { [kind] = words[at] }, at + 1
    elseif kind == "true" then
        return true, at
    elseif kind == "verbatim_string" then
        return { verbatim_string = { format = words[at], string = words[at + 1] } }, at + 2
    elseif kind == "map" or kind == "set" then
        local count = words[at]
        at = at + 1
        for _ = 1, count do
            local name, value = nil, true
            name, at = value_of(words, at)
            if kind == "map" then
                value, at = value_of(words, at)
            end
            made[name] = value
        end
        return { [kind] = made }, at
    end
    for index = 1, kind do
        made[index], at = value_of(words, at)
    end
    return made, at
end

local append -- below

-- Appends a table that stands for something other than an array. Returns false for an array.
local function append_special(words, count, one, depth, seen)
    local text = rawget(one, "err")
    if type(text) == "string" then
        local kind = rawget(one, "ignore_error_stats_update") and "counted_err" or "err"
        words[count + 1], words[count + 2], words[count + 3] = true, kind, text
        return count + 3
    end
    text = rawget(one, "ok")
    if type(text) == "string" then
        words[count + 1], words[count + 2], words[count + 3] = true, "ok", text
        return count + 3
    end
    local number = rawget(one, "double")
    if type(number) == "number" then
        words[count + 1], words[count + 2], words[count + 3] = true, "double", number
        return count + 3
    end
    for kind = 1, 2 do
        local name = kind == 1 and "map" or "set"
        local content = rawget(one, name)
        if type(content) == "table" then
            local pairs_at, found = count + 3, 0
            words[count + 1], words[count + 2] = true, name
            count = pairs_at
            for member, value in next, content do
                count = append(words, count, member, depth + 1, seen)
                if kind == 1 then
                    count = append(words, count, value, depth + 1, seen)
                end
                found = found + 1
            end
            words[pairs_at] = found
            return count
        end
    end
    text = rawget(one, "big_number")
    if type(text) == "string" then
        words[count + 1], words[count + 2], words[count + 3] = true, "big_number", text
        return count + 3
    end
    local verbatim = rawget(one, "verbatim_string")
    if type(verbatim) == "table" then
        local form
        form, text = rawget(verbatim, "format"), rawget(verbatim, "string")
        if type(form) == "string" and type(text) == "string" then
            words[count + 1], words[count + 2] = true, "verbatim_string"
            words[count + 3], words[count + 4] = form, text
            return count + 4
        end
    end
    return false
end

-- Appends the words of a value after `count` others. Returns their new number.
function append(words, count, one, depth, seen)
    local kind = type(one)
    if kind == "string" or kind == "number" or one == false then
        words[count + 1] = one
        return count + 1
    elseif one == true then
        words[count + 1], words[count + 2] = true, "true"
        return count + 2
    elseif kind ~= "table" then
        return count + 1 -- a function or coroutine: nil, since RESP has nothing for it
    end
    if depth > MAX_DEPTH or seen.too_deep then
        seen.too_deep = true
        return count
    end
    seen.tables = seen.tables + 1
    if seen.tables % TABLES == 0 and host.expired() then
        error({ err = host.timeout }, 0)
    end
    local special = next(one) and append_special(words, count, one, depth, seen)
    if special then
        return special
    end
    local length_at, length = count + 2, 0
    words[count + 1] = true
    count = length_at
    while true do
        local item = rawget(one, length + 1)
        if item == nil then
            break
        end
        length = length + 1
        count = append(words, count, item, depth + 1, seen)
    end
    words[length_at] = length
    return count
end

-- Returns a problem if the strings among `count` words have more than `most` bytes together. A string that
-- occurs often takes memory once in Lua, and each time outside of it. No string is longer than the memory in use.
local function size_problem(words, count, most, what)
    local bytes = 0
    if count * gcinfo() * 1024 > most then
        for index = 1, count do
            local word = words[index]
            bytes = bytes + (type(word) == "string" and #word or 0)
        end
    end
    if bytes > most then
        return format("%.0f bytes are too many for one %s, which may handle %.0f: work on parts", bytes, what, most)
    end
end

-- Returns the words of a table, and their number.
local function words_of(one)
    local words, seen = {}, { tables = 0 }
    local count = append(words, 0, one, 0, seen)
    if seen.too_deep then
        return { true, "err", "ERR reached lua stack limit" }, 3
    end
    local problem = size_problem(words, count, host.passed_bytes, "reply")
    if problem then
        error({ err = "ERR " .. problem }, 0)
    end
    return words, count
end

return value_of, words_of, size_problem
