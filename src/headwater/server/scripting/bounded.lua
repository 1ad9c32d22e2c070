-- Functions of Lua's own that C would not end: it would go on for ever, where no hook is called that
-- looks at the clock, or until its stack ends, and the server with it. Here they are refused before.
--
-- Errors are told as Lua's own functions tell them: with the line of the script that called.

local error, pcall, select, tonumber, type = error, pcall, select, tonumber, type
local gsub, match = string.gsub, string.match

local QUANTIFIERS = 1000 -- of a pattern: C's stack grows with each. Lua 5.2 allows 200 in each other.
local RESULTS = 8000 -- of unpack. Precedent: Lua 5.1, LUAI_MAXCSTACK, which it adds up to too late.
local MOVES = 10000000 -- of table.insert, which moves what stands behind an item.
local function passed_on(name, ok, ...)
    if ok then
        return ...
    end
    local problem = ...
    if type(problem) == "string" and not match(problem, "^[%w_]+:%d+: ") then
        error((gsub(problem, "^bad argument (#%d+) to '%?'", "bad argument %1 to '" .. name .. "'")), 3)
    end
    error(problem, 0)
end

-- The same function, which is not called when `problem_of` its arguments tells one.
local function bounded(name, native, problem_of)
    return function(...)
        local problem = problem_of(...)
        if problem then
            error(problem, 2)
        end
        return passed_on(name, pcall(native, ...))
    end
end

local function pattern_problem(_, pattern)
    if type(pattern) == "string" and #pattern > QUANTIFIERS then
        local _, count = gsub(pattern, "[*+?-]", "")
        return count > QUANTIFIERS and "malformed pattern (too complex)" or nil
    end
end

local function find_problem(text, pattern, _, plain)
    return not plain and pattern_problem(text, pattern) or nil
end

local function insert_problem(list, position, ...)
    position = select("#", ...) > 0 and tonumber(position)
    if position and type(list) == "table" and not (#list - position < MOVES) then
        return "bad argument #2 to 'insert' (position out of bounds)"
    end
end

local function unpack_problem(list, first, last)
    first = tonumber(first) or 1
    last = tonumber(last) or (type(list) == "table" and #list or 0)
    local whole = first > -2 ^ 31 and first < 2 ^ 31 and last > -2 ^ 31 and last < 2 ^ 31
    if not whole or last - first >= RESULTS then
        return "too many results to unpack"
    end
end

return {
    find = bounded("find", string.find, find_problem),
    match = bounded("match", string.match, pattern_problem),
    gmatch = bounded("gmatch", string.gmatch, pattern_problem),
    gsub = bounded("gsub", string.gsub, pattern_problem),
    insert = bounded("insert", table.insert, insert_problem),
    unpack = bounded("unpack", unpack, unpack_problem),
}
