-- The tables redis and cjson: the functions of a script that call the server. `host` has functions
-- of the server. Scripts never hold these functions: they get Lua functions that wrap them.
--
-- Rule 1. A function of the server returns words (values.py), or puts them into `box` if Lua may
--         have no room for them: Python's frames do not survive a failed allocation.
-- Rule 2. A failure is returned as false and a text. A script cannot catch a Python error.

local host, box, value_of, size_problem, NAME = ...

local error, select, tonumber, tostring, type, unpack =
    error, select, tonumber, tostring, type, unpack
local ceil, floor, next = math.ceil, math.floor, next
local gcinfo, getinfo, find, sub = gcinfo, debug.getinfo, string.find, string.sub

local ROOMY_KILOBYTES = host.roomy_kilobytes -- used memory below which the server passes values directly
local PASSED_BYTES = host.passed_bytes -- maximum size of all arguments of a call
-- The codes that a function of the server returns before its words. After true or false: one word.
local WORDS, BOXED, BOXED_WORDS, COUNTED, BOXED_COUNTED = 2, 1, 3, 4, 5
local DIRECT_WORDS = 1000 -- maximum number of arguments that are passed one by one; Lua refuses 8000

-- Returns the innermost line of the script on the stack, for error messages.
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

-- Decodes the results of a server function: true if it succeeded, the value or the text of the error,
-- and true if statistics have counted the error.
local function answer(code, ...)
    if code == true or code == false then
        return code, (...)
    elseif code == WORDS then
        return true, (value_of({ ... }, 1))
    elseif code == COUNTED then
        return false, (...), true
    end
    local value = box[1]
    box[1], box[2] = false, false
    if code == BOXED_WORDS then
        return true, (value_of(value, 1))
    end
    return code == BOXED, value, code == BOXED_COUNTED or nil
end

-- Throws an error that a server function has returned, as a table: Redis's convention.
local function thrown(ok, value, counted)
    if ok then
        return value
    end
    error({ err = value, ignore_error_stats_update = counted }, 0)
end

-- Returns a number, or a text that spells one, as an integer, as a cast to int does; otherwise nil.
local function as_int(value)
    local number = (type(value) == "number" or type(value) == "string") and tonumber(value)
    if not number then
        return nil
    elseif not (number > -2 ^ 31 - 1 and number < 2 ^ 31) then
        return -2 ^ 31
    end
    return number < 0 and ceil(number) + 0 or floor(number) -- not -0
end

-- Returns the integer for a number that is cast to 64 bits first, and then to int.
local function last_int(number)
    if not (number >= -2 ^ 63 and number < 2 ^ 63) then
        return 0
    end
    number = (number < 0 and ceil(number) or floor(number)) % 2 ^ 32
    return number < 2 ^ 31 and number or number - 2 ^ 32
end

-- redis -----------------------------------------------------------------------------------------

local redis = {
    LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3,
    REPL_NONE = 0, REPL_AOF = 1, REPL_SLAVE = 2, REPL_REPLICA = 2, REPL_ALL = 3,
    REDIS_VERSION = host.version, REDIS_VERSION_NUM = host.version_number,
}

-- A table would be copied on its way to the server, so it is not passed if memory may be short;
-- otherwise the server reports that tables are not valid. Many arguments are passed in a table.
local function ask(command, ...)
    local count, used = select("#", ...), gcinfo()
    if count * used * 1024 > PASSED_BYTES then
        local problem = size_problem({ ... }, count, PASSED_BYTES, "call")
        if problem then
            return false, "ERR " .. problem
        end
    end
    if count > DIRECT_WORDS then
        box[2] = { ... }
        return answer(command(host.in_box, count))
    end
    if used > ROOMY_KILOBYTES then
        for index = 1, count do
            local kind = type((select(index, ...)))
            if kind ~= "string" and kind ~= "number" then
                return answer(command(false))
            end
        end
    end
    return answer(command(...))
end

local call = host.call

function redis.call(...)
    return thrown(ask(call, ...))
end

function redis.pcall(...)
    local ok, value, counted = ask(call, ...)
    if ok then
        return value
    elseif value == host.timeout then
        error({ err = value }, 0)
    end
    return { err = value, ignore_error_stats_update = counted }
end

-- A text with a space begins with a code.
function redis.error_reply(...)
    local text = (...)
    if select("#", ...) ~= 1 or type(text) ~= "string" then
        return { err = "ERR wrong number or type of arguments" }
    elseif sub(text, 1, 1) == "-" then
        text = sub(text, 2)
    end
    return { err = find(text, " ", 1, true) and text or "ERR " .. text }
end

function redis.status_reply(...)
    local text = (...)
    if select("#", ...) ~= 1 or type(text) ~= "string" then
        return { err = "ERR wrong number or type of arguments" }
    end
    return { ok = text }
end

function redis.sha1hex(...)
    if select("#", ...) ~= 1 then
        error({ err = "ERR wrong number of arguments" }, 0)
    end
    local text = (...)
    return thrown(ask(host.sha1hex, (type(text) == "string" or type(text) == "number") and tostring(text) or ""))
end

function redis.log(level, ...)
    if select("#", ...) == 0 then
        error({ err = "ERR redis.log() requires two arguments or more." }, 0)
    elseif not as_int(level) then
        error({ err = "ERR First argument must be a number (log level)." }, 0)
    end
    local words = {}
    for index = 1, select("#", ...) do
        words[index] = tostring((select(index, ...)))
    end
    thrown(ask(host.log, as_int(level), unpack(words)))
end

function redis.setresp(...)
    if select("#", ...) ~= 1 then
        error({ err = "ERR redis.setresp() requires one argument." }, 0)
    end
    thrown(ask(host.setresp, as_int((...)) or 0))
end

function redis.acl_check_cmd(...)
    return thrown(ask(host.acl_check_cmd, ...))
end

-- Scripts are always replicated by their effects: the journal contains their changes.
function redis.replicate_commands()
    return true
end

function redis.set_repl(...)
    local flags = as_int((...)) or 0
    if select("#", ...) ~= 1 then
        error({ err = "ERR redis.set_repl() requires one argument." }, 0)
    elseif flags < 0 or flags >= redis.REPL_ALL + 1 then
        local names = "REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE."
        error({ err = "ERR Invalid replication flags. Use " .. names }, 0)
    end
end

-- Without a debugger, these do nothing, as in Redis.
function redis.breakpoint()
    return false
end

function redis.debug() end

-- cjson -----------------------------------------------------------------------------------------

local null = newproxy() -- the only userdata that a script ever holds
host.set_null(null)

local MOST_INT = 2 ^ 31 - 1
local SWITCHES = { on = true, off = false }

local function refuse(position, name, problem)
    -- Level 5 is the script: above it are this function, the setter, the option's function and its tail call.
    error(("bad argument #%d to '%s' (%s)"):format(position, name, problem), 5)
end

-- Sets a number and returns its value; nil only returns it.
local function set_number(settings, key, name, position, value, least, most)
    if value ~= nil then
        local number = (type(value) == "number" or type(value) == "string") and tonumber(value)
        if not number then
            refuse(position, name, "number expected, got " .. type(value))
        end
        number = last_int(number)
        if number < least or number > most then
            refuse(1, name, ("expected integer between %d and %d"):format(least, most))
        end
        settings[key] = number
    end
    return settings[key]
end

-- Sets a boolean and returns it. A script may also write it as "on" or "off".
local function set_switch(settings, key, name, value)
    local kind = type(value)
    if kind == "boolean" then
        settings[key] = value
    elseif kind == "string" or kind == "number" then
        if SWITCHES[value] == nil and not (value == "null" and key == "encode_invalid") then
            refuse(1, name, "invalid option '" .. value .. "'")
        end
        settings[key] = SWITCHES[value] == nil and "null" or SWITCHES[value]
    elseif value ~= nil then
        refuse(1, name, "string expected, got " .. kind)
    end
    return settings[key]
end

local function defaults()
    return {
        convert = false, ratio = 2, safe = 10, encode_depth = 1000, decode_depth = 1000,
        precision = 14, keep = true, encode_invalid = false, decode_invalid = true,
    }
end

-- Wraps a function of options: it takes at most `most` arguments.
local function option(name, most, set)
    return function(...)
        if select("#", ...) > most then
            error(("bad argument #%d to '%s' (found too many arguments)"):format(most + 1, name), 2)
        end
        return set(name, ...)
    end
end

local new_cjson

local function option_functions(settings)
    local functions = {}
    local function add(name, most, set)
        functions[name] = option(name, most, set)
    end
    local function add_number(name, key, most)
        add(name, 1, function(_, value)
            local number = set_number(settings, key, name, 1, value, 1, most)
            return number
        end)
    end
    local function add_switch(name, key)
        add(name, 1, function(_, value)
            local switched = set_switch(settings, key, name, value)
            return switched
        end)
    end
    add_number("encode_max_depth", "encode_depth", MOST_INT)
    add_number("decode_max_depth", "decode_depth", MOST_INT)
    add_number("encode_number_precision", "precision", 14)
    add_switch("encode_keep_buffer", "keep") -- without effect
    add_switch("encode_invalid_numbers", "encode_invalid")
    add_switch("decode_invalid_numbers", "decode_invalid")
    add("encode_sparse_array", 3, function(name, convert, ratio, safe)
        convert = set_switch(settings, "convert", name, convert)
        ratio = set_number(settings, "ratio", name, 2, ratio, 0, MOST_INT)
        safe = set_number(settings, "safe", name, 3, safe, 0, MOST_INT)
        return convert, ratio, safe
    end)
    return functions
end

-- Returns a module with separate settings, and a function that resets them.
function new_cjson()
    local settings = defaults()
    local cjson = option_functions(settings)
    cjson.null, cjson._NAME, cjson._VERSION = null, "cjson", "2.1.0"

    function cjson.new()
        local made = new_cjson()
        return made
    end

    function cjson.encode(...)
        if select("#", ...) ~= 1 then
            error("bad argument #1 to 'encode' (expected 1 argument)", 2)
        end
        box[2] = (...)
        local ok, value = answer(host.json_encode(settings.convert, settings.ratio, settings.safe,
            settings.encode_depth, settings.precision, settings.encode_invalid))
        if not ok then
            error(value, 2)
        end
        return value
    end

    function cjson.decode(...)
        local text = (...)
        if select("#", ...) ~= 1 then
            error("bad argument #1 to 'decode' (expected 1 argument)", 2)
        elseif type(text) == "number" then
            text = tostring(text)
        elseif type(text) ~= "string" then
            error("bad argument #1 to 'decode' (string expected, got " .. type(text) .. ")", 2)
        end
        local lenient = settings.decode_invalid and 1 or 0
        local ok, value = ask(host.json_decode, text, settings.decode_depth, lenient)
        if not ok then
            error(value, 2)
        end
        return value
    end

    return cjson, function()
        for name, value in next, defaults() do
            settings[name] = value
        end
    end
end

local cjson, reset_cjson = new_cjson()

return ask, redis, cjson, reset_cjson, answer, line_of_script
