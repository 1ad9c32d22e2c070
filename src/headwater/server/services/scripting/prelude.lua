-- The environment of scripts. Runs once in each interpreter, before any script. `host` has
-- functions of the server. Scripts never hold these functions: they get Lua functions that wrap them.
--
-- Rule 1. Every script runs in an environment of read-only tables, so that nothing of it remains
--         except its changes of the store.
-- Rule 2. Nothing in the environment leads to the real globals, to the debug library or to an
--         object of the server.
-- Rule 3. A call that would run without end in C, or overflow C's stack, is refused in advance
--         (bounded.lua).

local host, bounded, words_of, NAME, bit, struct, cmsgpack, redis, cjson, reset_cjson, answer,
    line_of_script = ...

local error, getmetatable, ipairs, next, pairs, rawget, rawset, select, setmetatable, tonumber,
    tostring, type, unpack, xpcall, loadstring, setfenv, pcall =
    error, getmetatable, ipairs, next, pairs, rawget, rawset, select, setmetatable, tonumber,
    tostring, type, unpack, xpcall, loadstring, setfenv, pcall
local sethook, getinfo = debug.sethook, debug.getinfo
local metatable_of = debug.getmetatable
local coroutine_create, coroutine_resume = coroutine.create, coroutine.resume
local sub, dump = string.sub, string.dump

local READ_ONLY = "Attempt to modify a readonly table"
local OURS = { ["@prelude"] = true, ["@calls"] = true }
local INSTRUCTIONS, FEW = 10000, 1000 -- number between two checks of the clock; FEW if much memory is used
local LARGE_KILOBYTES = 16384 -- used memory above which FEW applies: one instruction may copy or compare all of it
local ROOMY_KILOBYTES = host.roomy_kilobytes -- used memory below which the server passes values directly
local DIRECT_WORDS = 1000 -- maximum number in a result; more are passed in a table

-- Time ------------------------------------------------------------------------------------------

local ending = false -- true if the run has used up its time

local function instructions()
    return ending and 1 or gcinfo() > LARGE_KILOBYTES and FEW or INSTRUCTIONS
end

-- Outside a run there is no time limit (interpreter.py).
local function watch_time()
    if host.expired() then
        -- From now on, check at every instruction: a script that catches the error gets it again. Functions
        -- of this file continue, so that they can report the error.
        ending = true
        sethook(watch_time, "", 1)
        if OURS[getinfo(2, "S").source] == nil then
            error({ err = host.timeout }, 0)
        end
    else
        sethook(watch_time, "", instructions())
    end
end

sethook(watch_time, "", INSTRUCTIONS)

-- Each coroutine has its own hook, which can only be set from within it. A coroutine that is
-- created or resumed after the time limit gets no more time. Nor does the code that resumed one
-- that has reached the limit.
local function create(body)
    local made = coroutine_create(body)
    sethook(made, watch_time, "", instructions())
    return made
end

local function resumed(...)
    if ending then
        sethook(watch_time, "", 1)
    end
    return ...
end

-- Ends the run if a caught error hides that its time is over: near the limit of C's stack, the hook
-- itself fails, and nothing else would end a script that tries again and again.
local function caught(...)
    if not (...) and host.expired() then
        ending = true
        sethook(watch_time, "", 1)
        error({ err = host.timeout }, 0)
    end
    return ...
end

local function resume(...)
    return caught(resumed(coroutine_resume(...)))
end

-- Errors ----------------------------------------------------------------------------------------

-- Calls no function of the script, because it runs where the clock is not checked.
local function describe(problem)
    if type(problem) ~= "table" then
        return { err = "ERR " .. tostring(problem), line = line_of_script() }
    end
    local err, counted = rawget(problem, "err"), rawget(problem, "ignore_error_stats_update")
    if type(err) ~= "string" and type(err) ~= "number" then
        err = "ERR unknown error"
    end
    return { err = tostring(err), line = line_of_script(), counted = counted and true }
end

local function message(ok, ...)
    if ok then
        return ok, ...
    end
    local problem = ...
    if type(problem) == "table" and rawget(problem, "err") then
        return ok, rawget(problem, "err")
    end
    return ok, problem
end

-- The standard library --------------------------------------------------------------------------

local function copy(from, names)
    local made = {}
    for name in names:gmatch("%S+") do
        made[name] = from[name]
    end
    return made
end

local libraries = {
    redis = redis,
    server = redis,
    cjson = cjson,
    bit = bit,
    struct = struct,
    cmsgpack = cmsgpack,
    string = copy(string, "byte char dump find format gmatch gsub len lower match rep reverse sub upper"),
    table = copy(table, "concat foreach foreachi getn insert maxn remove sort"),
    math = copy(math, [[abs acos asin atan atan2 ceil cos cosh deg exp floor fmod frexp huge ldexp log
        log10 max min modf pi pow rad random randomseed sin sinh sqrt tan tanh]]),
    os = { clock = os.clock },
    coroutine = copy(coroutine, "running status yield"),
}

for _, library in ipairs({ libraries.string, libraries.table }) do
    for name in pairs(library) do
        library[name] = bounded[name] or library[name]
    end
end
libraries.string.gfind = libraries.string.gmatch -- Lua 5.0's names
libraries.math.mod = libraries.math.fmod
libraries.coroutine.create = create
libraries.coroutine.resume = resume

function libraries.coroutine.wrap(body)
    local made = create(body)
    local function passed(ok, ...)
        if ok then
            return ...
        end
        error((...), 0)
    end
    return function(...)
        return passed(resume(made, ...))
    end
end

local plain = {
    _VERSION = _VERSION, assert = assert, error = error, ipairs = ipairs, next = next,
    rawequal = rawequal, select = select, tonumber = tonumber,
    tostring = tostring, type = type, gcinfo = gcinfo, rawget = rawget,
    unpack = bounded.unpack,
}

function plain.collectgarbage(option)
    return option == "count" and collectgarbage("count") or 0
end

function plain.pcall(...)
    return message(caught(pcall(...)))
end

local function handled(handler, ok, ...)
    if ok then
        return ok, ...
    end
    local fine, told = pcall(handler, (...))
    if not fine and type(told) == "table" and told.err == host.timeout then
        error(told, 0)
    end
    return ok, fine and told or "error in error handling"
end

-- Lua's own xpcall calls the handler at the place of the error: within `watch_time`, nothing would stop it.
function plain.xpcall(body, handler)
    return handled(handler, caught(pcall(body)))
end

getmetatable("").__index = libraries.string

-- Scripts ---------------------------------------------------------------------------------------

-- A script gets empty tables whose metatables lead to the values that it may read. They are the same in every
-- run, as in Redis: no function that a script can call writes to them. Functions that write past a
-- metatable (rawset, insert) check first; all others write only to tables that already have items.
--
-- No table refers to objects of a run by weak keys: Lua 5.1 keeps a weak key alive as long as its value
-- refers to it.
local content_of = {} -- by metatable

local function modified()
    error(READ_ONLY, 2)
end

local function read_only(content)
    local meta = { __index = content, __newindex = modified, __metatable = false }
    content_of[meta] = content
    return meta
end

local function read_only_content(value)
    local meta = type(value) == "table" and metatable_of(value)
    return meta and content_of[meta]
end

function plain.pairs(target)
    local content = read_only_content(target)
    if not content then
        return pairs(target)
    end
    return function(_, name) return next(content, name) end, target, nil
end

function plain.rawset(target, name, value)
    if read_only_content(target) then
        error({ err = "ERR " .. READ_ONLY }, 0)
    end
    return rawset(target, name, value)
end

bounded.set_read_only(function(value)
    return read_only_content(value) and READ_ONLY
end)

function plain.setmetatable(...)
    if read_only_content((...)) then
        error({ err = "ERR " .. READ_ONLY }, 0)
    end
    local ok, made = pcall(setmetatable, ...)
    if not ok then
        error((made:gsub("to '%?'", "to 'setmetatable'")), 2)
    end
    return made
end

local globals = setmetatable({}, {
    __index = function(_, name)
        error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
    end,
})
local environment = setmetatable({}, read_only(globals))
local sealed = setmetatable({}, read_only({}))

function plain.getmetatable(value)
    if value == environment then
        return sealed
    end
    -- The metatable of strings leads to the string library itself.
    return type(value) ~= "string" and getmetatable(value) or nil
end

-- Refuses an argument, as Lua does.
local function refuse(name, expected, count, value)
    local got = count == 0 and "no value" or type(value)
    error(("bad argument #1 to '%s' (%s expected, got %s)"):format(name, expected, got), 3)
end

function plain.loadstring(...)
    local text = (...)
    if type(text) == "number" then
        text = tostring(text)
    elseif type(text) ~= "string" then
        refuse("loadstring", "string", select("#", ...), text)
    elseif sub(text, 1, 1) == "\27" then
        return nil, "attempt to load a precompiled chunk"
    end
    if #text > host.text_bytes then
        return nil, ("chunk too long: %d bytes, at most %d"):format(#text, host.text_bytes)
    end
    local chunk, problem = loadstring(text, "=loadstring")
    return chunk and setfenv(chunk, environment), problem
end

-- Loads the text that a function returns in parts.
function plain.load(...)
    local read = (...)
    if type(read) ~= "function" then
        refuse("load", "function", select("#", ...), read)
    end
    local parts = {}
    repeat
        local part = read()
        if part ~= nil and type(part) ~= "string" then
            return nil, "reader function must return a string"
        end
        parts[#parts + 1] = part
    until part == nil or part == ""
    return plain.loadstring(bounded.concat(parts))
end

for name, value in pairs(plain) do
    globals[name] = value
end
for name, library in pairs(libraries) do
    globals[name] = setmetatable({}, read_only(library))
end
globals._G, globals.KEYS, globals.ARGV = environment, false, false

local function compile(text)
    host.bound()
    if sub(text, 1, 1) == "\27" then
        return nil, "user_script: precompiled chunks are not loaded"
    end
    local script, problem = loadstring(text, NAME)
    if not script then
        return nil, problem
    end
    local _, chunk = answer(host.without_tail_calls(dump(script)))
    return setfenv(loadstring(chunk), environment)
end

local function finish(ok, value)
    if ending then
        sethook(watch_time, "", INSTRUCTIONS) -- first: the hook itself sets `ending`
        ending = false
    end
    globals.KEYS, globals.ARGV = false, false
    reset_cjson()
    if gcinfo() > ROOMY_KILOBYTES then
        host.unbound()
    end
    if not ok and type(value) ~= "table" then -- no memory for an error table
        value = { err = "ERR " .. tostring(value) }
    end
    return ok, value
end

local current, words, count -- of the current run

local function body()
    local value = current()
    local kind = type(value)
    if kind == "string" or kind == "number" or kind == "boolean" then
        return value
    elseif kind == "table" then
        words, count = words_of(value)
    end
    return nil
end

-- Runs a script. Returns a word; or the words of a table, the first of which is true; or, if there
-- are many, nil, their table and their number; or false, the text of an error, its line, and whether
-- it was counted.
local function run(script, keys, argv)
    globals.KEYS, globals.ARGV = keys, argv
    current, words, count = script, nil, 0
    sethook(watch_time, "", instructions())
    local ok, value = finish(xpcall(body, describe))
    if not ok then
        return false, value.err, value.line, value.counted or false
    elseif not words then
        return value
    elseif count > DIRECT_WORDS then
        return nil, words, count
    end
    return unpack(words, 1, count)
end

-- Does the same as `run`, for a few short keys and arguments.
local function run_words(script, count, ...)
    local keys, argv = {}, { ... }
    if count > 0 then
        keys = argv
        if select("#", ...) > count then
            argv = { select(count + 1, ...) }
            for index = #keys, count + 1, -1 do
                keys[index] = nil
            end
        else
            argv = {}
        end
    end
    return run(script, keys, argv)
end

local function run_bounded(script, keys, argv)
    host.bound()
    return run(script, keys, argv)
end

return compile, run_words, run_bounded
