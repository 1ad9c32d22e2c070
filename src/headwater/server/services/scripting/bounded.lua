-- Bounded versions of Lua functions that might run too long in C, where no hook checks the clock,
-- or that might overflow C's stack and so crash the server. Here such a call is refused in advance,
-- or done step by step: matching that may need too many steps (patterns.lua). A call whose time is
-- proportional to the bytes that it reads or writes is refused above CALL_BYTES; below, it is done and
-- then charged: a script exceeds its limit by one such call at most, a fraction of a second. sub, byte,
-- len, .. and comparisons only copy or compare memory and are not bounded.
--
-- Errors look like those of Lua's own functions: with the line of the script that called.

local slow, parse, coarse_growth, steps, charge, CALL_BYTES = ...

local error, ipairs, pcall, select, tonumber, tostring, type = error, ipairs, pcall, select, tonumber,
    tostring, type
local concat, maxn, remove, rep, sort = table.concat, table.maxn, table.remove, string.rep, table.sort
local byte, find, gmatch, gsub, match, sub = string.byte, string.find, string.gmatch, string.gsub,
    string.match, string.sub
local ceil, floor, max, min, next, rawget = math.ceil, math.floor, math.max,
    math.min, next, rawget

local QUANTIFIERS = 1000 -- maximum number in a pattern: C's stack grows with each. Lua 5.2 allows 200 nested ones.
local STEPS = 30000000 -- maximum number in C in one call, a tenth of a second; longer matches are done step by step
local FREE = 100000 -- number of steps in C in one call up to which they are not charged
local PATTERNS = 500 -- maximum number of patterns whose growth is cached
local RESULTS = 8000 -- maximum number that unpack returns. Precedent: Lua 5.1, LUAI_MAXCSTACK, checked too late.
local LONG_TEXT = 1000 -- number of bytes from which the comparison of two texts is charged
local BYTES = 16 -- number of bytes that C reads or writes in the time of a step
local SORTED = 100000 -- maximum number of items sorted in C; more are compared in Lua, where the clock is checked
local ITEM_BYTES = 4 -- number of bytes counted for each item of concat in addition to its own
local MOVES = 10000000 -- maximum number of items that table.insert moves: all items after the position

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

-- Wraps a function. If `problem_of` returns a problem with its arguments, the function is not called.
local function bounded(name, native, problem_of)
    return function(...)
        local problem = problem_of(...)
        if problem then
            error(problem, 2)
        end
        return passed_on(name, pcall(native, ...))
    end
end

-- Returns a problem if a call would read or write more than `CALL_BYTES`.
local function size_problem(bytes)
    if bytes > CALL_BYTES then
        return ("%.0f bytes are too many for one call, which may handle %.0f: work on parts, with string.sub")
            :format(bytes, CALL_BYTES)
    end
end

-- Patterns --------------------------------------------------------------------------------------

local known, known_count = {}, 0
local quick = {} -- by pattern that C always accepts: length of the subject up to which C may match it directly

-- Estimates the number of steps that C may need for a pattern, by the length of the subject.
local function plan_of(pattern, anchors)
    local plan = { length = #pattern }
    plan.power, plan.doubles = coarse_growth(pattern)
    if not anchors or sub(pattern, 1, 1) ~= "^" then
        plan.power = plan.power + 1
    end
    plan.free = 0
    local longer = 16
    while longer < 2 ^ 31 and steps(plan.length, plan.power, plan.doubles, longer) <= FREE do
        plan.free, longer = longer, longer * 2
    end
    return plan
end

-- Returns whether C accepts a pattern with every subject.
local function is_sound(pattern)
    local items = parse(sub(pattern, 1, 1) == "^" and sub(pattern, 2) or pattern)
    for index = 1, items.captures do
        if not items.closed[index] then
            return false
        end
    end
    return #items == 0 or items[#items].kind ~= "problem"
end

local function known_plan(pattern, anchors)
    anchors = anchors or byte(pattern) ~= 94 -- gmatch treats ^ as a letter and needs another plan
    local plan = anchors and known[pattern]
    if not plan then
        plan = plan_of(pattern, anchors)
        if anchors and #pattern <= 200 then
            if known_count >= PATTERNS then
                known, known_count, quick = {}, 0, {}
            end
            quick[pattern] = is_sound(pattern) and plan.free or nil
            known[pattern], known_count = plan, known_count + 1
        end
    end
    return plan
end

-- Returns whether C may match directly. Not called with arguments that C rejects, since C reports them.
local function is_short(subject, pattern, anchors)
    local plan = known_plan(pattern, anchors)
    if #subject <= plan.free then
        return true
    end
    local count = steps(plan.length, plan.power, plan.doubles, #subject)
    if count <= STEPS then
        charge(count)
        return true
    end
    return false
end

local function is_too_complex(pattern)
    if #pattern > QUANTIFIERS then
        local _, count = gsub(pattern, "[*+?-]", "")
        return count > QUANTIFIERS
    end
end

-- Converts a value to text as C does: a number is converted, too.
local function text_of(value)
    if type(value) == "number" then
        return tostring(value)
    end
    return type(value) == "string" and value or nil
end

local function optional_number(value)
    return value == nil or tonumber(value)
end

-- Returns the results of pcall with `native`, or with the step-by-step version if C might take too
-- long. Arguments that C rejects are passed to C, which reports the problem.
local function matching(name, native, takes)
    local anchors = name ~= "gmatch" -- gmatch treats ^ as a letter
    return function(...)
        local subject, pattern = text_of((...)), text_of((select(2, ...)))
        if not subject or not pattern or not takes(select(3, ...)) then
            return pcall(native, ...)
        elseif #subject + #pattern > CALL_BYTES then
            return false, size_problem(#subject + #pattern)
        elseif is_too_complex(pattern) then
            return false, "malformed pattern (too complex)"
        elseif is_short(subject, pattern, anchors) then
            return pcall(native, ...)
        end
        return pcall(slow[name], subject, pattern, select(3, ...))
    end
end

local function takes_replacement(...)
    local kind = type((...))
    local known_kind = kind == "string" or kind == "number" or kind == "table" or kind == "function"
    return known_kind and optional_number((select(2, ...)))
end

local find_pattern = matching("find", find, optional_number)
local match_pattern = matching("match", match, optional_number)
local gmatch_pattern = matching("gmatch", gmatch, optional_number)
local gsub_pattern = matching("gsub", gsub, takes_replacement)

local function find_text(subject, text, init)
    if #subject + #text > CALL_BYTES then
        return false, size_problem(#subject + #text)
    end
    local count = #subject * #text / 16
    if count <= STEPS then
        charge(count)
        return pcall(find, subject, text, init, true)
    end
    return pcall(slow.find_text, subject, text, init, STEPS * 16)
end

local function find_any(...)
    local subject, pattern, init, plain = ...
    subject, pattern = text_of(subject), text_of(pattern)
    if plain and not (subject and pattern and optional_number(init)) then
        return pcall(find, ...)
    elseif plain or (pattern and not match(pattern, "^[^%z]*[%^%$%*%+%?%.%(%[%%%-]")) then
        if subject and optional_number(init) then
            return find_text(subject, pattern, tonumber(init))
        end
    end
    return find_pattern(...)
end

-- The functions for scripts. Common short calls go directly to C, since nothing in them can be refused.
-- Apart from these, only calls of `passed_on` are tail calls: `passed_on` relies on that.
local functions = {}

function functions.find(...)
    local subject, pattern, init, plain = ...
    if type(subject) == "string" and (init == nil or type(init) == "number") then
        local length = quick[pattern]
        if plain then
            if type(pattern) == "string" and #subject * #pattern <= FREE then
                return find(...)
            end
        elseif length and #subject <= length then
            return find(...)
        end
    end
    return passed_on("find", find_any(...))
end

function functions.match(...)
    local subject, pattern, init = ...
    local length = quick[pattern]
    if length and init == nil and type(subject) == "string" and #subject <= length then
        return match(subject, pattern)
    end
    return passed_on("match", match_pattern(...))
end

function functions.gsub(...)
    local subject, pattern = ...
    local length = quick[pattern]
    if length and type(subject) == "string" and #subject <= length then
        return passed_on("gsub", pcall(gsub, ...))
    end
    return passed_on("gsub", gsub_pattern(...))
end

function functions.gmatch(...)
    local subject, pattern = ...
    local length = quick[pattern]
    if length and type(subject) == "string" and #subject <= length and byte(pattern) ~= 94 then
        return gmatch(subject, pattern)
    end
    local ok, following = gmatch_pattern(...)
    if not ok then
        return passed_on("gmatch", false, following)
    end
    return function()
        return passed_on("gmatch", pcall(following))
    end
end

local problem_of_read_only

-- Sets the function that tells whether a table is read-only: `insert` writes past its metatable.
function functions.set_read_only(problem_of)
    problem_of_read_only = problem_of
end

-- Converts a number as C does: without its fraction, to 64 and then to 32 bits.
local function as_int(number)
    if not (number > -2 ^ 63 and number < 2 ^ 63) then
        return 0
    end
    return ((number < 0 and ceil(number) or floor(number)) + 2 ^ 31) % 2 ^ 32 - 2 ^ 31
end

-- Charges the items of a list after a position, which C moves.
local function charge_moves(list, position)
    position = type(list) == "table" and tonumber(position)
    if position then
        charge(min(MOVES, max(0, #list - as_int(position))))
    end
end

local function insert_problem(list, position, ...)
    local problem = problem_of_read_only(list)
    if problem then
        return problem
    end
    position = select("#", ...) > 0 and tonumber(position)
    if position and type(list) == "table" and not (#list - as_int(position) < MOVES) then
        return "bad argument #2 to 'insert' (position out of bounds)"
    end
    charge_moves(list, position)
end

local function unpack_problem(list, first, last)
    first = as_int(tonumber(first) or 1)
    last = as_int(tonumber(last) or (type(list) == "table" and #list or 0))
    if last - first >= RESULTS then
        return "too many results to unpack"
    end
end

-- Charges the bytes of a text that C has created, if any, and `more` that it has read.
local function count(ok, text, more)
    if ok then
        more = more + #text / BYTES
    end
    if more > FREE / BYTES then
        charge(more)
    end
end

for _, name in ipairs({ "format", "lower", "reverse", "upper" }) do
    local native = string[name]
    functions[name] = function(...)
        local bytes = 0
        for index = 1, select("#", ...) do
            local value = (select(index, ...))
            bytes = bytes + (type(value) == "string" and #value or 0)
        end
        if bytes > CALL_BYTES then
            return passed_on(name, false, size_problem(bytes))
        end
        local ok, text = pcall(native, ...)
        count(ok, text, 0)
        return passed_on(name, ok, text)
    end
end

-- Returns roughly how many bytes concat reads. Stops at the first item that C refuses, and above the limit.
local function joined_bytes(list, separator, first, last)
    first, last = tonumber(first) or 1, tonumber(last) or (type(list) == "table" and #list or 0)
    local between = #(text_of(separator) or "")
    local each, bytes = ITEM_BYTES + between, -between
    for index = first, type(list) == "table" and last or first - 1 do
        local item = text_of(rawget(list, index))
        bytes = bytes + each + #(item or "")
        if not item or bytes > CALL_BYTES then
            break
        end
    end
    return bytes
end

function functions.concat(...)
    local problem = size_problem(joined_bytes(...))
    if problem then
        return passed_on("concat", false, problem)
    end
    local ok, text = pcall(concat, ...)
    count(ok, text, ok and #(...) or 0)
    return passed_on("concat", ok, text)
end

function functions.rep(...)
    local text, times = ...
    local number = tonumber(times) or 0
    if text == "" and tonumber(times) then -- C would loop `times` times
        return text
    end
    local problem = size_problem(#(text_of(text) or "") * max(number, as_int(number)))
    if problem then
        return passed_on("rep", false, problem)
    end
    local ok, made = pcall(rep, ...)
    count(ok, made, 0)
    return passed_on("rep", ok, made)
end

local function is_less(one, other)
    if type(one) == "string" and type(other) == "string" then
        charge(min(#one, #other) / BYTES)
    end
    return one < other
end

-- Returns whether C might compare for too long.
local function is_long(list)
    if type(list) == "table" and #list > SORTED then
        return true
    end
    for index = 1, type(list) == "table" and #list or 0 do
        local item = rawget(list, index)
        if type(item) == "string" and #item > LONG_TEXT then
            return true
        end
    end
    return false
end

function functions.sort(...)
    local list, comparator = ...
    if is_long(list) then
        if comparator == nil then
            return passed_on("sort", pcall(sort, list, is_less))
        elseif type(comparator) == "function" then -- which may be one of C's, where no clock is checked
            return passed_on("sort", pcall(sort, list, function(one, other)
                local less = comparator(one, other)
                return less
            end))
        end
    end
    return passed_on("sort", pcall(sort, ...))
end

function functions.remove(...)
    charge_moves(...)
    return passed_on("remove", pcall(remove, ...))
end

function functions.maxn(...)
    if type((...)) ~= "table" then
        return passed_on("maxn", pcall(maxn, ...))
    end
    local most = 0
    for name in next, (...) do
        if type(name) == "number" and name > most then
            most = name
        end
    end
    return most
end

functions.insert = bounded("insert", table.insert, insert_problem)
functions.unpack = bounded("unpack", unpack, unpack_problem)
return functions
