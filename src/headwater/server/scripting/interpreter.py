"""A Lua state that can reach nothing but what a script may.

Lua is 5.1, as in Redis, brought by lupa. The state has no Python object: attribute access is denied,
and scripts get Lua functions around the server's (prelude.lua).

Memory is bounded while a script is compiled and while it runs, and only then: where Lua finds no room
it jumps to the last pcall, over whatever stands between, and Python's frames do not survive that. So
whatever Python does with values of Lua, it does unbounded, and answers scripts in a table, `_box`.
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

_GARBAGE_BYTES = 4 << 20
"""What Lua may hold beyond twice of what it held after the last whole collection. Its own collector
goes on in small steps while scripts run; a whole one after each run would cost more than the run."""

_JSON_BYTES, _JSON_VALUE_BYTES = 4, 200
"""What a byte and a value of JSON take, in Python and Lua together."""


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
        self._lua.set_max_memory(0)
        self._problems = (lua51.LuaError, RecursionError, MemoryError)
        self.table: Callable[[], Any] = self._lua.table
        self._type = lua51.lua_type
        self._null: Any = None
        self._deadline = 0.0
        self._collect_above = 0
        self._broken: BaseException | None = None
        self._box = self._list([b"", b""])
        self.call: Callable[[Sequence[Any]], Any] = _nothing
        self.setresp: Callable[[int], None] = _nothing
        self.may_run: Callable[[Sequence[Any]], bool] = _nothing
        load = self._lua.eval(b"function(text) return loadstring(text, '@prelude') end")
        bounded, prelude = (
            load(resources.files(__package__).joinpath(name).read_bytes())
            for name in ("bounded.lua", "prelude.lua")
        )
        self._compile, self._run = prelude(self._host(), self._box, bounded())

    def kind(self, value: Any) -> str:
        """Lua's name of a value's type, ``nil`` for what Lua passes as a plain value."""
        return self._type(value) or "nil"

    def compile(self, text: bytes) -> Any:
        """A script's function. Raises `CommandError` with Lua's message."""
        problem = "not enough memory"
        try:
            made = self._compile(text) if len(text) < self.room else (None, problem.encode())
        except self._problems:
            made = None, problem.encode()
        finally:
            self._unbound()
        if isinstance(made, tuple):
            problem = made[1].decode("utf-8", "surrogateescape")
            raise CommandError(f"ERR Error compiling script (new function): {problem}")
        return made

    @property
    def room(self) -> int:
        """Bytes that scripts may take beyond those that they have."""
        return MAX_SCRIPT_MEMORY_BYTES - int(self._lua.get_memory_used())

    def expired(self) -> bool:
        """Whether the script has had its time."""
        return time.monotonic() > self._deadline

    def run(
        self, script: Any, keys: Sequence[bytes], argv: Sequence[bytes], *, seconds: float
    ) -> Any | Problem:
        """What a script returns, or what ended it; for so many seconds at most."""
        self._deadline = time.monotonic() + seconds
        self._broken = None
        try:
            outcome = self._run(script, self._list(keys), self._list(argv))
        except self._problems as error:
            text = f"ERR {error}".encode("utf-8", "surrogateescape")
            return Problem(text.partition(b"\n")[0], None)
        finally:
            self._unbound()
            self._collect()
            if self._broken is not None:
                raise self._broken
        if not isinstance(outcome, tuple):
            return None
        ok, value = outcome
        if ok:
            return value
        if isinstance(value, bytes):  # there was no room to tell it properly
            return Problem(b"ERR " + value, None)
        return Problem(_text(value[b"err"]), value[b"line"])

    def _collect(self) -> None:
        """Free what scripts have left, when that may be most of what Lua holds."""
        if self._lua.get_memory_used() > self._collect_above:
            self._lua.gccollect()
            held = int(self._lua.get_memory_used())
            self._collect_above = min(2 * held + _GARBAGE_BYTES, MAX_SCRIPT_MEMORY_BYTES // 4)

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
            b"expired": self.expired,
            b"bound": self._bound,
            b"unbound": self._unbound,
            b"call": self._answering(lambda *words: self.call(words)),
            b"setresp": self._answering(self._on_setresp),
            b"acl_check_cmd": self._answering(lambda *words: self.may_run(words)),
            b"sha1hex": self._answering(_sha1hex),
            b"log": self._answering(self._on_log),
            b"without_tail_calls": self._answering(without_tail_calls),
            b"set_null": self._set_null,
            b"json_encode": self._answering(self._json_encode),
            b"json_decode": self._answering(self._json_decode),
        }.items():
            host[name] = value
        return host

    def _set_null(self, null: Any) -> None:
        self._null = null

    # What scripts reach, through the prelude.

    def _bound(self) -> None:
        self._lua.set_max_memory(MAX_SCRIPT_MEMORY_BYTES)

    def _unbound(self) -> None:
        self._lua.set_max_memory(0)

    def _answering(self, function: Callable[..., Any]) -> Callable[..., bool]:
        """A function for the prelude: its value, or the text with which it has failed, is put in the
        box. Any other exception ends the script's run with it, whatever the script makes of it."""

        def answer(*arguments: Any) -> bool:
            self._unbound()
            try:
                ok, self._box[1] = True, function(*arguments)
            except ScriptFailed as failed:
                ok, self._box[1] = False, failed.args[0]
            except BaseException as error:
                self._broken = error
                raise
            self._bound()
            return ok

        return answer

    def _on_setresp(self, version: Any = None) -> None:
        if version not in {2, 3}:
            raise ScriptFailed(b"ERR RESP version must be 2 or 3.")
        self.setresp(int(version))

    def _on_log(self, level: Any = None, *words: Any) -> None:
        if level not in range(len(_LEVELS)):
            raise ScriptFailed(b"ERR Invalid log level.")
        text = b" ".join(map(_text, words)).decode("utf-8", "backslashreplace")
        log.log(_LEVELS[int(level)], "%s", text.replace("\n", " "))

    def _json_encode(self) -> bytes:
        try:
            text = Encoder(self.kind, self._check_json).encode(self._box[2])
        except NotJSON as error:
            raise ScriptFailed(str(error).encode()) from None
        except RecursionError:
            raise ScriptFailed(b"Cannot serialise, excessive depth") from None
        return text.encode("utf-8", "surrogateescape")

    def _check_json(self, length: int) -> None:
        if length > self.room:
            raise NotJSON("not enough memory")
        if self.expired():
            raise NotJSON("the script has run for too long")

    def _json_decode(self, text: Any) -> Any:
        if not isinstance(text, bytes):
            raise ScriptFailed(b"Expected a text")
        values = text.count(b",") + text.count(b"[") + text.count(b"{")
        if _JSON_BYTES * len(text) + _JSON_VALUE_BYTES * values > self.room:
            raise ScriptFailed(b"not enough memory")
        try:
            return decode(text, self.table, self._null)
        except NotJSON as error:
            raise ScriptFailed(str(error).encode("utf-8", "replace")) from None


def _nothing(*_: Any) -> Any:
    raise AssertionError("no script is running")


def _deny(_object: object, name: Any, _setting: bool) -> Any:
    raise AttributeError(f"a script has no access to {name!r}")


def _text(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    return b"ERR unknown error" if value is None else str(value).encode()


def _sha1hex(text: Any) -> bytes:
    return hashlib.sha1(_text(text), usedforsecurity=False).hexdigest().encode()
