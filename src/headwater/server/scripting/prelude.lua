-- What a script sees. Runs once in each interpreter, before any script; `host` are functions of the
-- server, which no script ever holds itself: it gets Lua functions around them.
--
-- Rule 1. Every script runs in an environment of its own, made of read-only tables over what stands
--         here, so that nothing outlives it but what it writes to the store.
-- Rule 2. Nothing here leads to the real globals, to the debug library or to an object of the server.

local host = ...

local error, getmetatable, ipairs, next, pairs, rawget, rawset, select, setmetatable, tonumber,
    tostring, type, unpack, xpcall, loadstring, setfenv, pcall =
    error, getmetatable, ipairs, next, pairs, rawget, rawset, select, setmetatable, tonumber,
    tostring, type, unpack, xpcall, loadstring, setfenv, pcall
local sethook, getinfo = debug.sethook, debug.getinfo
local coroutine_create, coroutine_resume = coroutine.create, coroutine.resume
local sub, dump = string.sub, string.dump

local READ_ONLY = "Attempt to modify a readonly table"
local NAME, PRELUDE = "@user_script", "@prelude"
local INSTRUCTIONS = 100000 -- between two looks at the clock

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

local function describe(problem)
    if type(problem) ~= "table" then
        problem = { err = "ERR " .. tostring(problem) }
    end
    return { err = problem.err, line = problem.line or line_of_script() }
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

function redis.call(...)
    return thrown(host.call(...))
end

function redis.pcall(...)
    local ok, value = host.call(...)
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
    return host.sha1hex(tostring((...)))
end

function redis.log(level, ...)
    if select("#", ...) == 0 or type(level) ~= "number" then
        error({ err = "ERR redis.log() requires two arguments or more." }, 0)
    end
    local words = {}
    for index = 1, select("#", ...) do
        words[index] = tostring((select(index, ...)))
    end
    thrown(host.log(level, unpack(words)))
end

function redis.setresp(version)
    thrown(host.setresp(version))
end

function redis.acl_check_cmd(...)
    return thrown(host.acl_check_cmd(...))
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
    local ok, value = host.json_encode((...))
    if not ok then
        error(value, 2)
    end
    return value
end

function cjson.decode(text)
    if type(text) ~= "string" then
        error("bad argument #1 to 'decode' (string expected, got " .. type(text) .. ")", 2)
    end
    local ok, value = host.json_decode(text)
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
    tostring = tostring, type = type, unpack = unpack, gcinfo = gcinfo, rawget = rawget,
    rawset = rawset,
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

function plain.xpcall(body, handler)
    return xpcall(body, function(problem)
        if type(problem) == "table" and problem.err then
            problem = problem.err
        end
        return handler(problem)
    end)
end

getmetatable("").__index = libraries.string

-- Scripts ---------------------------------------------------------------------------------------

local contents = setmetatable({}, { __mode = "k" }) -- of the read-only tables

local function read_only(content, index)
    local made = setmetatable({}, {
        __index = index or content,
        __newindex = function() error(READ_ONLY, 2) end,
        __metatable = false,
    })
    contents[made] = content
    return made
end

function plain.pairs(target)
    return pairs(contents[target] or target)
end

local function environment(keys, argv)
    local content = { KEYS = keys, ARGV = argv }
    for name, value in pairs(plain) do
        content[name] = value
    end
    for name, library in pairs(libraries) do
        content[name] = read_only(library)
    end
    local made = read_only(content, function(_, name)
        local value = content[name]
        if value == nil then
            error("Script attempted to access nonexistent global variable '"
                .. tostring(name) .. "'", 2)
        end
        return value
    end)
    content._G = made
    function content.loadstring(text)
        if type(text) ~= "string" or sub(text, 1, 1) == "\27" then
            return nil, "attempt to load a precompiled chunk"
        end
        local chunk, problem = loadstring(text, "=loadstring")
        return chunk and setfenv(chunk, made), problem
    end
    function content.rawset(target, name, value)
        if contents[target] then
            error({ err = "ERR " .. READ_ONLY }, 0)
        end
        return rawset(target, name, value)
    end
    return made
end

local function compile(text)
    if sub(text, 1, 1) == "\27" then
        return nil, "user_script: precompiled chunks are not loaded"
    end
    local script, problem = loadstring(text, NAME)
    if not script then
        return nil, problem
    end
    return loadstring(host.without_tail_calls(dump(script)))
end

local function run(script, keys, argv)
    setfenv(script, environment(keys, argv))
    sethook(watch_time, "", INSTRUCTIONS)
    local ok, value = xpcall(script, describe)
    sethook()
    return ok, value
end

return compile, run
