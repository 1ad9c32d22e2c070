"""Removes the tail calls from a compiled Lua 5.1 chunk.

``return redis.call(…)`` is a tail call, for which Lua discards the frame with the line of an error.
In Redis that function is written in C, for which Lua retains the frame; here it is written in Lua.
A tail call is followed by an instruction that returns its results (lcode.c, luaK_ret), so an
ordinary call in its place does the same.

Source: Lua 5.1, ldump.c (the format) and lopcodes.h (the instructions).
"""

from __future__ import annotations

import struct

_HEADER_BYTES = 12
_CALL, _TAIL_CALL, _OPCODE_BITS = 28, 29, 0x3F
_CONSTANT_BYTES = {0: 0, 1: 1, 3: 8}
_STRING = 4


def without_tail_calls(chunk: bytes) -> bytes:
    """Replace the tail calls of a chunk of ``string.dump``, made in this process, with ordinary calls."""
    patched = bytearray(chunk)
    assert patched[:5] == b"\x1bLua\x51", "a chunk of Lua 5.1"
    assert patched[6:12] == b"\x01\x04\x08\x04\x08\x00", "of this machine's sizes"
    _Functions(patched).patch()
    return bytes(patched)


class _Functions:
    """Visits the functions of a chunk."""

    def __init__(self, chunk: bytearray) -> None:
        self._chunk = chunk
        self._at = _HEADER_BYTES

    def patch(self) -> None:
        self._string()
        self._at += 12  # first and last line; upvalues, parameters, varargs, stack
        for _ in range(self._integer()):
            if self._chunk[self._at] & _OPCODE_BITS == _TAIL_CALL:
                self._chunk[self._at] += _CALL - _TAIL_CALL
            self._at += 4
        for _ in range(self._integer()):
            kind = self._chunk[self._at]
            self._at += 1
            if kind == _STRING:
                self._string()
            else:
                self._at += _CONSTANT_BYTES[kind]
        for _ in range(self._integer()):
            self.patch()
        lines = self._integer()
        self._at += 4 * lines
        for _ in range(self._integer()):
            self._string()  # a local variable and its scope
            self._at += 8
        for _ in range(self._integer()):
            self._string()  # an upvalue's name

    def _integer(self) -> int:
        (value,) = struct.unpack_from("<i", self._chunk, self._at)
        self._at += 4
        return int(value)

    def _string(self) -> None:
        (length,) = struct.unpack_from("<Q", self._chunk, self._at)
        self._at += 8 + int(length)
