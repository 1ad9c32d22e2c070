-- What a script sees. Runs once in each interpreter, before any script; `host` are functions of the
-- server, which no script ever holds itself: it gets Lua functions around them.
--
-- Rule 1. Every script runs in an environment of its own, made of read-only tables over what stands
--         here, so that nothing outlives it but what it writes to the store.
-- Rule 2. Nothing here leads to the real globals, to the debug library or to an object of the server.
-- Rule 3. A function of the server is given text, numbers and booleans only, and answers in `box`:
--         anything else would make room in Lua outside of Lua, where nothing catches that there is none.
-- Rule 4. What C would do for ever, or until its stack ends, is refused before it begins
--         (bounded.lua).

local host, box, bounded = ...

local error, getmetatable, ipairs, next, pairs, rawget, rawset, select, setmetatable, tonumber,
    tostring, type, unpack, xpcall, loadstring, setfenv, pcall =
    error, getmetatable, ipairs, next, pairs, rawget, rawset, select, setmetatable, tonumber,
    tostring, type, unpack, xpcall, loadstring, setfenv, pcall
local sethook, getinfo = debug.sethook, debug.getinfo
local metatable_of, strip = debug.getmetatable, debug.setmetatable
local coroutine_create, coroutine_resume = coroutine.create, coroutine.resume
local sub, dump = string.sub, string.dump

local READ_ONLY = "Attempt to modify a readonly table"
local NAME, PRELUDE = "@user_script", "@prelude"
local INSTRUCTIONS = 100000 -- between two looks at the clock
local TABLES = 1000 -- of a script's answer, likewise

-- Time ------------------------------------------------------------------------------------------

local function watch_time()
    if host.expired() then
        -- From here on at every instruction: a script that catches the error gets it again. What
        -- stands in this file goes on, so that it can tell the error.
        sethook(watch_time, "", 1)
        if getinfo(2, "S").source ~= PRELUDE then
            error({ err = host.timeout }, 0)
        end
    end
end

local function create(body)
    local made = coroutine_create(body)
    sethook(made, watch_time, "", INSTRUCTIONS)
    return made
end

-- Errors ----------------------------------------------------------------------------------------

-- The innermost line of the script, where an error is looked for.
local function line_of_script()
    for level = 3, 200 do
        local info = getinfo(level, "Sl")
        if not info then
            return nil
        end
        if info.source == NAME then
            return info.currentline
        end
    end
end

-- Nothing of the script's own is called by it: this runs where no clock is looked at.
local function describe(problem)
    if type(problem) ~= "table" then
        return { err = "ERR " .. tostring(problem), line = line_of_script() }
    end
    local err, line = rawget(problem, "err"), rawget(problem, "line")
    if type(err) ~= "string" and type(err) ~= "number" then
        err = "ERR unknown error"
    end
    return { err = tostring(err), line = type(line) == "number" and line or line_of_script() }
end

-- What the server answered.
local function answer(ok)
    local value = box[1]
    box[1], box[2] = false, false
    return ok, value
end

-- An error that a server function has returned is thrown, as a table: Redis's convention.
local function thrown(ok, value)
    if ok then
        return value
    end
    error({ err = value, line = line_of_script() }, 0)
end

local function message(ok, ...)
    if ok then
        return ok, ...
    end
    local problem = ...
    if type(problem) == "table" and problem.err then
        return ok, problem.err
    end
    return ok, problem
end

-- redis -----------------------------------------------------------------------------------------

local redis = {
    LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3,
    REPL_NONE = 0, REPL_AOF = 1, REPL_SLAVE = 2, REPL_REPLICA = 2, REPL_ALL = 3,
    REDIS_VERSION = host.version, REDIS_VERSION_NUM = host.version_number,
}

local function ask(command, ...)
    local words = { ... }
    for index = 1, select("#", ...) do
        local kind = type(words[index])
        if kind ~= "string" and kind ~= "number" then
            return answer(command(false))
        end
    end
    return answer(command(...))
end

function redis.call(...)
    return thrown(ask(host.call, ...))
end

function redis.pcall(...)
    local ok, value = ask(host.call, ...)
    if ok then
        return value
    end
    return { err = value }
end

function redis.error_reply(text)
    if type(text) ~= "string" then
        return { err = "ERR wrong number or type of arguments" }
    end
    return { err = sub(text, 1, 1) == "-" and sub(text, 2) or "ERR " .. text }
end

function redis.status_reply(text)
    if type(text) ~= "string" then
        return { err = "ERR wrong number or type of arguments" }
    end
    return { ok = text }
end

function redis.sha1hex(...)
    if select("#", ...) ~= 1 then
        error({ err = "ERR wrong number of arguments" }, 0)
    end
    return thrown(ask(host.sha1hex, tostring((...))))
end

function redis.log(level, ...)
    if select("#", ...) == 0 or type(level) ~= "number" then
        error({ err = "ERR redis.log() requires two arguments or more." }, 0)
    end
    local words = {}
    for index = 1, select("#", ...) do
        words[index] = tostring((select(index, ...)))
    end
    thrown(ask(host.log, level, unpack(words)))
end

function redis.setresp(version)
    thrown(ask(host.setresp, version))
end

function redis.acl_check_cmd(...)
    return thrown(ask(host.acl_check_cmd, ...))
end

-- A script has always been replicated by its effects: the journal holds what it did.
function redis.replicate_commands()
    return true
end

function redis.set_repl() end

-- cjson -----------------------------------------------------------------------------------------

local null = newproxy() -- the only userdata that a script ever holds
host.set_null(null)
local cjson = { null = null }

function cjson.encode(...)
    if select("#", ...) ~= 1 then
        error("bad argument #1 to 'encode' (expected 1 argument)", 2)
    end
    box[2] = (...)
    local ok, value = answer(host.json_encode())
    if not ok then
        error(value, 2)
    end
    return value
end

function cjson.decode(text)
    if type(text) ~= "string" then
        error("bad argument #1 to 'decode' (string expected, got " .. type(text) .. ")", 2)
    end
    local ok, value = ask(host.json_decode, text)
    if not ok then
        error(value, 2)
    end
    return value
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
    string = copy(string, "byte char find format gmatch gsub len lower match rep reverse sub upper"),
    table = copy(table, "concat foreach foreachi getn insert maxn remove sort"),
    math = copy(math, [[abs acos asin atan atan2 ceil cos cosh deg exp floor fmod frexp huge ldexp log
        log10 max min modf pi pow rad random randomseed sin sinh sqrt tan tanh]]),
    os = { clock = os.clock },
    coroutine = copy(coroutine, "resume running status yield"),
}

for _, name in ipairs({ "find", "match", "gmatch", "gsub" }) do
    libraries.string[name] = bounded[name]
end
libraries.table.insert = bounded.insert
libraries.coroutine.create = create

function libraries.coroutine.wrap(body)
    local made = create(body)
    local function passed(ok, ...)
        if ok then
            return ...
        end
        error((...), 0)
    end
    return function(...)
        return passed(coroutine_resume(made, ...))
    end
end

local plain = {
    _VERSION = _VERSION, assert = assert, error = error, ipairs = ipairs, next = next,
    rawequal = rawequal, select = select, setmetatable = setmetatable, tonumber = tonumber,
    tostring = tostring, type = type, gcinfo = gcinfo, rawget = rawget,
    unpack = bounded.unpack,
}

function plain.getmetatable(value)
    -- That of strings leads to the string library itself.
    return type(value) ~= "string" and getmetatable(value) or nil
end

function plain.collectgarbage(option)
    return option == "count" and collectgarbage("count") or 0
end

function plain.pcall(...)
    return message(pcall(...))
end

local function handled(handler, ok, ...)
    if ok then
        return ok, ...
    end
    local _, problem = message(ok, ...)
    local fine, told = pcall(handler, problem)
    if not fine and type(told) == "table" and told.err == host.timeout then
        error(told, 0)
    end
    return ok, fine and told or "error in error handling"
end

-- Lua's own calls the handler where the error is: within `watch_time`, nothing would end it.
function plain.xpcall(body, handler)
    return handled(handler, pcall(body))
end

getmetatable("").__index = libraries.string

-- Scripts ---------------------------------------------------------------------------------------

-- A script gets empty tables, made for its run alone. Their metatables are made once, lead to what a
-- script may read, and are never reached by one. No table here refers to a run by a weak key: Lua 5.1
-- keeps a weak key for as long as its value refers to it.
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

local library_metas = {}
for name, library in pairs(libraries) do
    library_metas[name] = read_only(library)
end

local globals = setmetatable({}, {
    __index = function(_, name)
        error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
    end,
})
local globals_meta = read_only(globals)

function plain.loadstring(text)
    if type(text) ~= "string" or sub(text, 1, 1) == "\27" then
        return nil, "attempt to load a precompiled chunk"
    end
    local chunk, problem = loadstring(text, "=loadstring")
    return chunk and setfenv(chunk, globals._G), problem
end

for name, value in pairs(plain) do
    globals[name] = value
end

-- The environment of one run.
local function environment(keys, argv)
    local made = setmetatable({}, globals_meta)
    for name, meta in next, library_metas do
        globals[name] = setmetatable({}, meta)
    end
    globals._G, globals.KEYS, globals.ARGV = made, keys, argv
    return made
end

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
    return loadstring(chunk)
end

-- A script's answer, for the server to read without running anything of the script's by it.
local function bare(value)
    local found, seen, at = {}, {}, 1
    local function find(one)
        if type(one) == "table" and not seen[one] then
            seen[one] = true
            strip(one, nil)
            found[#found + 1] = one
        end
    end
    find(value)
    while found[at] do
        if at % TABLES == 1 and host.expired() then
            error({ err = host.timeout }, 0)
        end
        for name, inner in next, found[at] do
            find(name)
            find(inner)
        end
        at = at + 1
    end
    return value
end

local function run(script, keys, argv)
    host.bound()
    setfenv(script, environment(keys, argv))
    sethook(watch_time, "", INSTRUCTIONS)
    local ok, value = xpcall(function() return bare((script())) end, describe)
    sethook()
    -- The latest environment stays until the next run; what a client sent does not.
    globals.KEYS, globals.ARGV = false, false
    host.unbound()
    return ok, value
end

return compile, run
