-- The tables redis and cjson: the functions of a script that call the server. `host` has functions
-- of the server. Scripts never hold these: they get Lua functions that wrap them.
--
-- Rule 1. A function of the server returns words (values.py), or puts them into `box` if Lua may
--         have no room for them: Python's frames do not survive a failed allocation.
-- Rule 2. A failure is returned as false and a text. A script cannot catch an error of Python's.

local host, box, value_of, NAME = ...

local error, rawget, select, tostring, type, unpack =
    error, rawget, select, tostring, type, unpack
local gcinfo, getinfo, sub = gcinfo, debug.getinfo, string.sub

local ROOMY_KILOBYTES = host.roomy_kilobytes -- of used memory, below which the server passes values directly
-- The codes that a function of the server returns before its words. After true or false: one word.
local WORDS, BOXED, BOXED_ERROR, BOXED_WORDS = 2, 1, 0, 3

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

-- Decodes what the server returned: whether it succeeded, and the value or the text of the error.
local function answer(code, ...)
    if code == true or code == false then
        return code, (...)
    elseif code == WORDS then
        return true, (value_of({ ... }, 1))
    end
    local value = box[1]
    box[1], box[2] = false, false
    if code == BOXED_WORDS then
        return true, (value_of(value, 1))
    end
    return code == BOXED, value
end

-- Throws an error that a server function has returned, as a table: Redis's convention.
local function thrown(ok, value)
    if ok then
        return value
    end
    error({ err = value, line = line_of_script() }, 0)
end

-- redis -----------------------------------------------------------------------------------------

local redis = {
    LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3,
    REPL_NONE = 0, REPL_AOF = 1, REPL_SLAVE = 2, REPL_REPLICA = 2, REPL_ALL = 3,
    REDIS_VERSION = host.version, REDIS_VERSION_NUM = host.version_number,
}

-- A table would be copied on its way to the server, so it is not passed if memory may be short;
-- otherwise the server reports that tables are not valid.
local function ask(command, ...)
    if gcinfo() > ROOMY_KILOBYTES then
        for index = 1, select("#", ...) do
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
    local ok, value = ask(call, ...)
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

-- Scripts are always replicated by their effects: the journal contains what they did.
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

return redis, cjson, answer, line_of_script
