-- The libraries bit, struct and cmsgpack. The server computes (libraries.py); here arguments are
-- checked, and results become Lua values.

local host, box, size_problem, ask, answer = ...

local max = math.max
local error, ipairs, select, tonumber, tostring, type, unpack =
    error, ipairs, select, tonumber, tostring, type, unpack

-- Converts the results of `ask`; an error has the line of the script.
local function checked(ok, value)
    if not ok then
        error(value, 3)
    end
    return value
end

-- Returns a text, also for a number, as Lua's own functions do.
local function text_of(position, name, value, count)
    if type(value) ~= "string" and type(value) ~= "number" then
        local got = count < position and "no value" or type(value)
        error(("bad argument #%d to '%s' (string expected, got %s)"):format(position, name, got), 3)
    end
    return tostring(value)
end

-- Returns a number, also for a text that spells one. If it is missing, returns `default` if given.
local function number_of(position, name, value, count, default)
    if value == nil and default then
        return default
    end
    local number = (type(value) == "string" or type(value) == "number") and tonumber(value)
    if not number then
        local got = count < position and "no value" or type(value)
        error(("bad argument #%d to '%s' (number expected, got %s)"):format(position, name, got), 3)
    end
    return number
end

-- bit -------------------------------------------------------------------------------------------

local bit = {}
local MOST = { tobit = 1, bnot = 1, bswap = 1, lshift = 2, rshift = 2, arshift = 2, rol = 2, ror = 2 } -- others fold

for _, name in ipairs({ "tobit", "bnot", "bswap", "band", "bor", "bxor", "lshift", "rshift",
    "arshift", "rol", "ror" }) do
    bit[name] = function(...)
        local count = select("#", ...)
        local most = MOST[name] or max(count, 1)
        local numbers = { ... }
        for index = 1, most do
            numbers[index] = number_of(index, name, numbers[index], count)
        end
        local value = checked(ask(host.bits, name, unpack(numbers, 1, most)))
        return value
    end
end

function bit.tohex(...)
    local count, number, digits = select("#", ...), ...
    number = number_of(1, "tohex", number, count)
    digits = count > 1 and bit.tobit(number_of(2, "tohex", digits, count)) or 8
    local form = "%08x"
    if digits < 0 then
        form, digits = "%08X", -digits
    end
    local shown = form:format(bit.tobit(number) % 2 ^ 32)
    return digits < 8 and shown:sub(9 - digits) or shown
end

-- struct ----------------------------------------------------------------------------------------

local struct = {}

function struct.pack(...)
    local count = select("#", ...)
    local form = text_of(1, "pack", (...), count)
    local problem = size_problem({ ... }, count, host.call_bytes, "call")
    if problem then
        error(problem, 2)
    end
    local value = checked(ask(host.struct_pack, form, select(2, ...)))
    return value
end

function struct.unpack(...)
    local count, form, data, position = select("#", ...), ...
    form, data = text_of(1, "unpack", form, count), text_of(2, "unpack", data, count)
    position = number_of(3, "unpack", position, count, 1)
    local values = checked(ask(host.struct_unpack, form, data, position))
    return unpack(values)
end

function struct.size(...)
    local value = checked(ask(host.struct_size, text_of(1, "size", (...), select("#", ...))))
    return value
end

-- cmsgpack --------------------------------------------------------------------------------------

local cmsgpack = {
    _NAME = "cmsgpack", _VERSION = "lua-cmsgpack 0.4.0",
    _COPYRIGHT = "Copyright (C) 2012, Salvatore Sanfilippo",
    _DESCRIPTION = "MessagePack C implementation for Lua",
}

function cmsgpack.pack(...)
    local count = select("#", ...)
    if count == 0 then
        error("bad argument #0 to 'pack' (MessagePack pack needs input.)", 2)
    end
    box[2] = { ... }
    local value = checked(answer(host.msgpack_pack(count)))
    return value
end

-- Returns a table of the values, their number and the next offset.
local function unpacked(data, limit, offset)
    local ok, made = ask(host.msgpack_unpack, data, limit, offset)
    if not ok then
        error(made, 3)
    end
    return made, made.count, made.offset
end

function cmsgpack.unpack(...)
    local made, count = unpacked(text_of(1, "unpack", (...), select("#", ...)), 0, 0)
    return unpack(made, 1, count)
end

function cmsgpack.unpack_one(...)
    local given, data, offset = select("#", ...), ...
    offset = number_of(2, "unpack_one", offset, given, 0)
    local made, count, following = unpacked(text_of(1, "unpack_one", data, given), 1, offset)
    return following, unpack(made, 1, count)
end

function cmsgpack.unpack_limit(...)
    local given, data, limit, offset = select("#", ...), ...
    limit = number_of(2, "unpack_limit", limit, given)
    offset = number_of(3, "unpack_limit", offset, given, 0)
    local made, count, following = unpacked(text_of(1, "unpack_limit", data, given), limit, offset)
    if limit > -1 and limit < 1 then
        return unpack(made, 1, count)
    end
    return following, unpack(made, 1, count)
end

return bit, struct, cmsgpack
