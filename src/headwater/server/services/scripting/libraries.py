"""The libraries bit, struct and cmsgpack of scripts: 32-bit integers, C structures, MessagePack.

libraries.lua has their Lua part. Values are as lupa passes them: bytes, int, float, bool, None, tables.

Source: redis.io, Redis Lua API reference; bitop.luajit.org; the manual of struct 0.2; msgpack.org,
specification; lua-cmsgpack's README for nested tables and other types.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from math import copysign, inf, isnan
from typing import Any

from headwater.server.services.scripting.values import ScriptFailed

_WORD = 2**32
_MOST_SIZE = 32
"""Maximum size of an integer of struct, in bytes. Precedent: struct 0.2, MAXINTSIZE."""
_MOST_NESTING = 16
"""Maximum depth of tables; deeper ones are packed as nil. Precedent: lua-cmsgpack, LUACMSGPACK_MAX_NESTING."""

_MOST_FORMAT = 65536
"""Maximum length of a format of struct. A longer one would only have spaces and padding."""

_SIZES = {"b": 1, "h": 2, "l": 8, "t": 8, "f": 4, "d": 8, "x": 1}


# bit -------------------------------------------------------------------------------------------


def as_integer(number: float) -> int:
    """Convert a number of Lua to a C integer of 64 bits, as a cast does."""
    return int(number) if -(2**63) <= number < 2**63 else -(2**63)


def bits(name: bytes, *numbers: float) -> int:
    """Return the result of a function of bit, a signed integer."""
    first, *others = [_as_word(number) for number in numbers]
    count = others[0] % 32 if others else 0
    if name in _FOLDS:
        for other in others:
            first = _FOLDS[name](first, other)
    elif name == b"arshift":
        first = _signed(first) >> count
    else:
        first = _SHIFTS[name](first, count)
    return _signed(first % _WORD)


def _as_word(number: float) -> int:
    """Return the last 32 bits of a number, rounded to even as LuaBitOp does: those of a sum whose exponent is 52.
    The bits are arbitrary for numbers beyond 2^51, infinities and NaN. Precedent: bitop.luajit.org, semantics."""
    return int.from_bytes(struct.pack("<d", number + (2**52 + 2**51))[:4], "little")


def low_word(number: int) -> int:
    """Return the last 32 bits of a number as a signed integer, as a cast to int does."""
    return _signed(number % _WORD)


def _signed(number: int) -> int:
    return number - _WORD if number >= _WORD // 2 else number


_FOLDS: dict[bytes, Callable[[int, int], int]] = {
    b"band": lambda one, other: one & other,
    b"bor": lambda one, other: one | other,
    b"bxor": lambda one, other: one ^ other,
}
_SHIFTS: dict[bytes, Callable[[int, int], int]] = {
    b"tobit": lambda number, _: number,
    b"bnot": lambda number, _: ~number,
    b"bswap": lambda number, _: int.from_bytes(number.to_bytes(4, "little"), "big"),
    b"lshift": lambda number, count: number << count,
    b"rshift": lambda number, count: number >> count,
    b"rol": lambda number, count: number << count | number >> (32 - count),
    b"ror": lambda number, count: number >> count | number << (32 - count),
}


# struct ----------------------------------------------------------------------------------------


class _Format:
    """Reads the options of a format: ``kind``, ``size``, and the number of bytes that align it at ``total``."""

    def __init__(self, text: bytes, function: str) -> None:
        if len(text) > _MOST_FORMAT:
            problem = f"{len(text)} bytes are too many for a format, which may have {_MOST_FORMAT}"
            raise ScriptFailed(problem.encode())
        self._text = text.decode("latin-1")
        self._function = function
        self._at = 0
        self._align = 1
        self.order = sys.byteorder

    def next(self, total: int) -> tuple[str, int, int] | None:
        """Return the next option that stands for bytes, None after the last."""
        while self._at < len(self._text) and self._text[self._at] != "\0":
            kind = self._text[self._at]
            self._at += 1
            if kind in "<>":
                self.order = "little" if kind == "<" else "big"
            elif kind == "!":
                self._align = self._number(8)
                if self._align < 1 or self._align & (self._align - 1):
                    text = f"alignment {self._align} is not a power of 2"
                    raise ScriptFailed(text.encode())
            elif kind != " ":
                size = self._size(kind)
                least = 1 if kind in "csx" else max(1, min(size, self._align))
                return kind, size, -total % least if not least & (least - 1) else 0
        return None

    def _size(self, kind: str) -> int:
        if kind in "iI":
            size = self._number(4)
            if size > _MOST_SIZE:
                text = f"integral size {size} is larger than limit of {_MOST_SIZE}"
                raise ScriptFailed(text.encode())
            return size
        if kind in "cs":
            return self._number(1) if kind == "c" else 0
        size = _SIZES.get(kind if kind in "fdx" else kind.lower(), 0)
        if not size or (kind.isupper() and kind in "FDX") or kind == "t":
            if self._function == "size" and kind.isascii() and kind.isalnum():
                return 0  # precedent: struct 0.2
            problem = f"bad argument #1 to '{self._function}' (invalid format option '{kind}')"
            raise ScriptFailed(problem.encode("latin-1"))
        return size

    def _number(self, default: int) -> int:
        begin = self._at
        while "0" <= self._text[self._at : self._at + 1] <= "9":
            self._at += 1
        digits = self._text[begin : self._at]
        if len(digits) > 9:
            raise ScriptFailed(b"integral size overflow")
        return int(digits) if digits else default


def struct_pack(form: bytes, *values: Any) -> bytes:
    """Implement struct.pack."""
    options, made, following = _Format(form, "pack"), bytearray(), iter(values)
    number = 1
    while (option := options.next(len(made))) is not None:
        kind, size, padding = option
        made += bytes(padding)
        if kind == "x":
            made.append(0)
            continue
        number += 1
        value = next(following, None)
        if kind in "cs":
            text = _text_of(value, number)
            size = size if kind == "c" and size else len(text)
            if len(text) < size:
                raise ScriptFailed(
                    f"bad argument #{number + 1} to 'pack' (string too short)".encode()
                )
            made += text[:size] + bytes(kind == "s")
        elif kind in "fd":
            real = _number_of(value, number)
            try:
                made += struct.pack(_code(options, kind), real)
            except OverflowError:
                made += struct.pack(_code(options, kind), copysign(inf, real))
        else:
            real = _number_of(value, number)
            whole = _as_unsigned(real) % 256**size
            made += whole.to_bytes(size, "big" if options.order == "big" else "little")
    return bytes(made)


def _code(options: _Format, kind: str) -> str:
    return (">" if options.order == "big" else "<") + kind


def _as_unsigned(number: float) -> int:
    """Convert a number of Lua to 64 bits, as a cast does, even if it is negative or out of range."""
    if -(2**63) <= number < 2**64:
        return int(number) % 2**64
    return 0 if number > 0 else 2**63


def _text_of(value: Any, number: int) -> bytes:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return b"-nan" if isnan(value) and copysign(1, value) < 0 else f"{value:.14g}".encode()
    if isinstance(value, bytes):
        return value
    raise _expected("string", value, number)


def _number_of(value: Any, number: int) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    text = value.strip().lower() if isinstance(value, bytes) and b"_" not in value else b""
    try:
        return float(int(text, 16)) if b"x" in text else float(text)
    except ValueError:
        raise _expected("number", value, number) from None


def _expected(kind: str, value: Any, number: int) -> ScriptFailed:
    names = {
        "bytes": "string", "bool": "boolean", "NoneType": "nil", "_LuaFunction": "function",
        "_LuaThread": "thread", "_LuaObject": "userdata",
    }  # fmt: skip
    got = names.get(type(value).__name__, "table")
    return ScriptFailed(f"bad argument #{number} to 'pack' ({kind} expected, got {got})".encode())


def struct_unpack(form: bytes, data: bytes, position: float = 1) -> list[Any]:
    """Implement struct.unpack. Return words: an array of the values and the next position."""
    options, values = _Format(form, "unpack"), list[Any]()
    at = as_integer(position) - 1
    if at == -1:
        raise ScriptFailed(b"bad argument #3 to 'unpack' (offset must be 1 or greater)")
    while (option := options.next(at)) is not None:
        kind, size, padding = option
        at += padding
        if at < 0 or at + size > len(data):
            raise ScriptFailed(b"bad argument #2 to 'unpack' (data string too short)")
        part = data[at : at + size]
        if kind == "s":
            size = data.find(b"\0", at) - at
            if size < 0:
                raise ScriptFailed(b"unfinished string in data")
            values.append(data[at : at + size])
            size += 1
        elif kind == "c":
            if not size:
                if not values or not isinstance(values[-1], int | float):
                    raise ScriptFailed(b"format 'c0' needs a previous size")
                size = as_integer(values.pop())
                if not 0 <= size <= len(data) - at:
                    raise ScriptFailed(b"bad argument #2 to 'unpack' (data string too short)")
            values.append(data[at : at + size])
        elif kind in "fd":
            values.append(struct.unpack(_code(options, kind), part)[0])
        elif kind != "x":
            order = "big" if options.order == "big" else "little"
            whole = int.from_bytes(part, order, signed=kind.islower())  # type: ignore[arg-type]
            values.append(float(whole))
        at += size
    return [True, len(values) + 1, *values, at + 1]


def struct_size(form: bytes) -> int:
    """Implement struct.size."""
    options, total = _Format(form, "size"), 0
    while (option := options.next(total)) is not None:
        kind, size, padding = option
        if kind == "s" or (kind == "c" and not size):
            text = f"option '{'s' if kind == 's' else 'c0'}' has no fixed size"
            raise ScriptFailed(f"bad argument #1 to 'size' ({text})".encode())
        total += padding + size
    return total


# cmsgpack --------------------------------------------------------------------------------------


class Packer:
    """Packs values. ``kind`` returns the Lua type of a value; ``check`` is called with the size so far."""

    def __init__(self, kind: Callable[[Any], str], check: Callable[[int], None]) -> None:
        self._kind = kind
        self._check = check
        self.made = bytearray()

    def add(self, value: Any, depth: int = 0) -> None:
        """Append a value to ``made``."""
        made = self.made
        if isinstance(value, bool):
            made.append(0xC3 if value else 0xC2)
        elif isinstance(value, bytes):
            self._check(len(made) + len(value))
            self._head(len(value), 0xA0, 31, (0xD9, 0xDA, 0xDB))
            made += value
        elif isinstance(value, int | float):
            self._add_number(value)
        elif value is not None and self._kind(value) == "table" and depth < _MOST_NESTING:
            self._check(len(made))
            self._add_table(list(value.items()), depth + 1)
        else:
            made.append(0xC0)

    def _add_number(self, number: float) -> None:
        made = self.made
        if not -(2**63) <= number < 2**63 or number != int(number):
            try:
                narrow = struct.pack(">f", number)
            except OverflowError:
                narrow = b""
            if narrow and struct.unpack(">f", narrow)[0] == number:
                made += b"\xca" + narrow
            else:
                made += b"\xcb" + struct.pack(">d", number)
            return
        whole = int(number)
        if -32 <= whole <= 127:
            made.append(whole % 256)
            return
        for index, size in enumerate((1, 2, 4, 8)):
            if -(256**size) // 2 <= whole < (256**size if whole >= 0 else 0):
                made.append((0xCC if whole >= 0 else 0xD0) + index)
                made += whole.to_bytes(size, "big", signed=whole < 0)
                return

    def _add_table(self, pairs: list[tuple[Any, Any]], depth: int) -> None:
        count = len(pairs)
        # For Python, True is 1: a table with both has two items.
        content = {name: value for name, value in pairs if not isinstance(name, bool)}
        if len(content) == count and all(index in content for index in range(1, count + 1)):
            self._head(count, 0x90, 15, (0, 0xDC, 0xDD))
            for index in range(1, count + 1):
                self.add(content[index], depth)
            return
        self._head(count, 0x80, 15, (0, 0xDE, 0xDF))
        for name, value in pairs:
            self.add(name, depth)
            self.add(value, depth)

    def _head(self, count: int, short: int, most: int, codes: tuple[int, int, int]) -> None:
        if count <= most:
            self.made.append(short | count)
            return
        for code, size in zip(codes, (1, 2, 4), strict=True):
            if code and count < 256**size:
                self.made.append(code)
                self.made += count.to_bytes(size, "big")
                return


class Pairs(list[tuple[Any, Any]]):
    """An unpacked map: its pairs, because names may be tables."""


class Unpacker:
    """Unpacks values from ``at`` on; an array is a list. ``values`` is their number, with which ``check`` is
    called from time to time."""

    def __init__(self, data: bytes, at: int, check: Callable[[int], None]) -> None:
        self._data = data
        self._check = check
        self.at = at
        self.values = 0

    def next(self) -> Any:
        """Unpack the next value."""
        self.values += 1
        if self.values % 1000 == 0:
            self._check(self.values)
        code = self.take(1)[0]
        if code < 0x80:
            return float(code)
        if code >= 0xE0:
            return float(code - 256)
        if code < 0x90:
            return self.map(code & 15)
        if code < 0xA0:
            return self.array(code & 15)
        if code < 0xC0:
            return self.take(code & 31)
        return self._long(code)

    def _long(self, code: int) -> Any:
        if code in _CONSTANTS:
            return _CONSTANTS[code]
        if code in (0xCA, 0xCB):
            return struct.unpack(">f" if code == 0xCA else ">d", self.take(4 << (code - 0xCA)))[0]
        if 0xCC <= code <= 0xD3:
            size = 1 << (code - 0xCC) % 4
            signed = code >= 0xD0 or size == 8  # precedent: lua-cmsgpack
            return float(int.from_bytes(self.take(size), "big", signed=signed))
        for first, sizes, read in _LENGTHS:
            if first <= code < first + len(sizes):
                count = int.from_bytes(self.take(sizes[code - first]), "big")
                return read(self, count)
        raise ScriptFailed(b"Bad data format in input.")

    def take(self, count: int) -> bytes:
        """Return the next bytes."""
        part = self._data[self.at : self.at + count]
        if len(part) < count:
            raise ScriptFailed(b"Missing bytes in input.")
        self.at += count
        return part

    def array(self, count: int) -> list[Any]:
        """Return the next values."""
        return [self.next() for _ in range(count)]

    def map(self, count: int) -> Pairs:
        """Return the next pairs."""
        return Pairs((self.next(), self.next()) for _ in range(count))


_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
_LENGTHS: tuple[tuple[int, tuple[int, ...], Callable[[Unpacker, int], Any]], ...] = (
    (0xD9, (1, 2, 4), Unpacker.take),
    (0xDC, (2, 4), Unpacker.array),
    (0xDE, (2, 4), Unpacker.map),
)


def lua_value(value: Any, table: Callable[[], Any]) -> Any:
    """Convert an unpacked value to a Lua value."""
    if isinstance(value, Pairs):
        made = table()
        for name, item in value:
            if name is not None and not (isinstance(name, float) and isnan(name)):
                made[lua_value(name, table)] = lua_value(item, table)
        return made
    if isinstance(value, list):
        made = table()
        for index, item in enumerate(value, 1):
            made[index] = lua_value(item, table)
        return made
    return value
