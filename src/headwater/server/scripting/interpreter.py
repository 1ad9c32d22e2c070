"""A Lua state that can reach nothing but what a script may.

Lua is 5.1, as in Redis, brought by lupa. The state has no Python object: attribute access is denied,
and scripts get Lua functions around the server's (prelude.lua).
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Sequence
from importlib import resources
from typing import Any, NamedTuple

from headwater.errors import CommandError
from headwater.limits import MAX_SCRIPT_MEMORY_BYTES
from headwater.server.identity import COMPATIBLE_VERSION
from headwater.server.scripting.cjson import Encoder, NotJSON, decode
from headwater.server.scripting.tailcalls import without_tail_calls
from headwater.server.scripting.values import ScriptFailed

log = logging.getLogger("headwater.scripts")

_LEVELS = (logging.DEBUG, logging.DEBUG, logging.INFO, logging.WARNING)

Answer = tuple[bool, Any]
"""Whether it went well, and the value or the text of the error."""


class Problem(NamedTuple):
    """What ended a script: the text of its error, and the line of the script if it is known."""

    text: bytes
    line: int | None


class Interpreter:
    """One Lua state with the prelude loaded. Raises `ImportError` where lupa is not installed.

    ``call``, ``setresp`` and ``may_run`` are set by whoever runs a script, for the time of that run.
    """

    def __init__(self) -> None:
        from lupa import lua51

        self._lua = lua51.LuaRuntime(
            encoding=None,
            register_eval=False,
            register_builtins=False,
            unpack_returned_tuples=True,
            attribute_filter=_deny,
            max_memory=MAX_SCRIPT_MEMORY_BYTES,
        )
        self._problems = (lua51.LuaError, RecursionError, MemoryError)
        self.table: Callable[[], Any] = self._lua.table
        self._type = lua51.lua_type
        self._null: Any = None
        self._deadline = 0.0
        self.call: Callable[[Sequence[Any]], Any] = _nothing
        self.setresp: Callable[[int], None] = _nothing
        self.may_run: Callable[[Sequence[Any]], bool] = _nothing
        prelude = resources.files(__package__).joinpath("prelude.lua").read_bytes()
        load = self._lua.eval(b"function(text) return loadstring(text, '@prelude') end")
        self._compile, self._run = load(prelude)(self._host())

    def kind(self, value: Any) -> str:
        """Lua's name of a value's type, ``nil`` for what Lua passes as a plain value."""
        return self._type(value) or "nil"

    def compile(self, text: bytes) -> Any:
        """A script's function. Raises `CommandError` with Lua's message."""
        made = self._compile(text)
        if isinstance(made, tuple):
            problem = made[1].decode("utf-8", "surrogateescape")
            raise CommandError(f"ERR Error compiling script (new function): {problem}")
        return made

    def run(
        self, script: Any, keys: Sequence[bytes], argv: Sequence[bytes], *, seconds: float
    ) -> Any | Problem:
        """What a script returns, or what ended it; for so many seconds at most."""
        self._deadline = time.monotonic() + seconds
        try:
            outcome = self._run(script, self._list(keys), self._list(argv))
        except self._problems as error:
            text = f"ERR {error}".encode("utf-8", "surrogateescape")
            return Problem(text.partition(b"\n")[0], None)
        finally:
            self._lua.gccollect()
        if not isinstance(outcome, tuple):
            return None
        ok, value = outcome
        if ok:
            return value
        if isinstance(value, bytes):  # there was no room to tell it properly
            return Problem(b"ERR " + value, None)
        return Problem(_text(value[b"err"]), value[b"line"])

    def _list(self, values: Sequence[bytes]) -> Any:
        made = self.table()
        for index, value in enumerate(values, 1):
            made[index] = value
        return made

    def _host(self) -> Any:
        """What the prelude builds on."""
        host = self.table()
        version = COMPATIBLE_VERSION
        major, minor, patch = map(int, version.split(b"."))
        for name, value in {
            b"version": version,
            b"version_number": major << 16 | minor << 8 | patch,
            b"timeout": b"ERR the script ran longer than lua-time-limit and was ended; what it had "
            b"written stands",
            b"expired": lambda: time.monotonic() > self._deadline,
            b"call": self._on_call,
            b"setresp": self._on_setresp,
            b"acl_check_cmd": self._on_may_run,
            b"sha1hex": lambda text: hashlib.sha1(text, usedforsecurity=False).hexdigest().encode(),
            b"log": self._on_log,
            b"without_tail_calls": without_tail_calls,
            b"set_null": self._set_null,
            b"json_encode": self._json_encode,
            b"json_decode": self._json_decode,
        }.items():
            host[name] = value
        return host

    def _set_null(self, null: Any) -> None:
        self._null = null

    # What scripts reach, through the prelude. None of these may raise: an exception would pass through
    # the script's pcall as something that is no value of Lua.

    def _on_call(self, *arguments: Any) -> Answer:
        try:
            return True, self.call(arguments)
        except ScriptFailed as failed:
            return False, failed.args[0]

    def _on_setresp(self, version: Any = None) -> Answer:
        if version not in {2, 3}:
            return False, b"ERR RESP version must be 2 or 3."
        self.setresp(int(version))
        return True, None

    def _on_may_run(self, *arguments: Any) -> Answer:
        try:
            return True, self.may_run(arguments)
        except ScriptFailed as failed:
            return False, failed.args[0]

    def _on_log(self, level: float, *words: bytes) -> Answer:
        if level not in range(len(_LEVELS)):
            return False, b"ERR Invalid log level."
        text = b" ".join(words).decode("utf-8", "backslashreplace")
        log.log(_LEVELS[int(level)], "%s", text.replace("\n", " "))
        return True, None

    def _json_encode(self, value: Any = None) -> Answer:
        try:
            text = Encoder(self.kind).encode(value)
        except NotJSON as error:
            return False, str(error).encode()
        except RecursionError:
            return False, b"Cannot serialise, excessive depth"
        return True, text.encode("utf-8", "surrogateescape")

    def _json_decode(self, text: bytes) -> Answer:
        try:
            return True, decode(text, self.table, self._null)
        except NotJSON as error:
            return False, str(error).encode("utf-8", "replace")


def _nothing(*_: Any) -> Any:
    raise AssertionError("no script is running")


def _deny(_object: object, name: Any, _setting: bool) -> Any:
    raise AttributeError(f"a script has no access to {name!r}")


def _text(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    return b"ERR unknown error" if value is None else str(value).encode()
