-- The libraries bit, struct and cmsgpack. The server computes (libraries.py); here arguments are
-- checked, and results become Lua values.

local host, box, size_problem, ask, answer = ...

local abs, huge = math.abs, math.huge
local error, ipairs, select, tonumber, tostring, type, unpack =
    error, ipairs, select, tonumber, tostring, type, unpack

-- Converts what `ask` returned; an error has the line of the script.
local function checked(ok, value)
    if not ok then
        error(value, 3)
    end
    return value
end

local function refuse(position, name, expected, value, count)
    local got = (count or 0) < position and value == nil and "no value" or type(value)
    error(("bad argument #%d to '%s' (%s expected, got %s)"):format(position, name, expected, got), 3)
end

-- bit -------------------------------------------------------------------------------------------

local bit = {}
local LEAST = { tobit = 1, bnot = 1, bswap = 1, band = 1, bor = 1, bxor = 1 } -- others take two

for _, name in ipairs({ "tobit", "bnot", "bswap", "band", "bor", "bxor", "lshift", "rshift",
    "arshift", "rol", "ror" }) do
    bit[name] = function(...)
        local numbers, count = { ... }, select("#", ...)
        local least = LEAST[name] or 2
        for index = 1, count < least and least or count do
            local number = numbers[index]
            numbers[index] = type(number) ~= "boolean" and tonumber(number) or nil
            if not numbers[index] then
                refuse(index, name, "number", number, count)
            elseif numbers[index] ~= numbers[index] or abs(numbers[index]) == huge then
                numbers[index] = 0
            end
        end
        local value = checked(ask(host.bits, name, unpack(numbers)))
        return value
    end
end

function bit.tohex(number, digits)
    if not tonumber(number) then
        refuse(1, "tohex", "number", number)
    end
    if digits ~= nil and not tonumber(digits) then
        refuse(2, "tohex", "number", digits)
    end
    digits = tonumber(digits) or 8
    local form = "%08x"
    if digits < 0 then
        form, digits = "%08X", -digits
    end
    local shown = form:format(bit.tobit(number) % 2 ^ 32)
    return digits < 8 and shown:sub(9 - digits) or shown
end

-- struct ----------------------------------------------------------------------------------------

local struct = {}

function struct.pack(form, ...)
    if type(form) ~= "string" then
        refuse(1, "pack", "string", form)
    end
    local problem = size_problem({ ... }, select("#", ...), host.call_bytes, "call")
    if problem then
        error(problem, 2)
    end
    local value = checked(ask(host.struct_pack, form, ...))
    return value
end

function struct.unpack(form, data, position)
    if type(form) ~= "string" then
        refuse(1, "unpack", "string", form)
    elseif type(data) ~= "string" then
        refuse(2, "unpack", "string", data)
    elseif position ~= nil and not tonumber(position) then
        refuse(3, "unpack", "number", position)
    end
    local values = checked(ask(host.struct_unpack, form, data, tonumber(position) or 1))
    return unpack(values)
end

function struct.size(form)
    if type(form) ~= "string" then
        refuse(1, "size", "string", form)
    end
    local value = checked(ask(host.struct_size, form))
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
local function unpacked(name, data, limit, offset)
    if type(data) == "number" then
        data = tostring(data)
    elseif type(data) ~= "string" then
        error(("bad argument #1 to '%s' (string expected, got %s)"):format(name,
            data == nil and "no value" or type(data)), 3)
    end
    local ok, made = ask(host.msgpack_unpack, data, limit, offset)
    if not ok then
        error(made, 3)
    end
    return made, made.count, made.offset
end

function cmsgpack.unpack(data)
    local made, count = unpacked("unpack", data, 0, 0)
    return unpack(made, 1, count)
end

function cmsgpack.unpack_one(data, offset)
    if offset ~= nil and not tonumber(offset) then
        refuse(2, "unpack_one", "number", offset)
    end
    local made, count, following = unpacked("unpack_one", data, 1, tonumber(offset) or 0)
    return following, unpack(made, 1, count)
end

function cmsgpack.unpack_limit(data, limit, offset)
    if not tonumber(limit) then
        refuse(2, "unpack_limit", "number", limit)
    elseif offset ~= nil and not tonumber(offset) then
        refuse(3, "unpack_limit", "number", offset)
    end
    local made, count, following =
        unpacked("unpack_limit", data, tonumber(limit), tonumber(offset) or 0)
    if tonumber(limit) == 0 then
        return unpack(made, 1, count)
    end
    return following, unpack(made, 1, count)
end

return bit, struct, cmsgpack
