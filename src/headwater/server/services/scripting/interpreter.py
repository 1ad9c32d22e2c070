"""A Lua state that can reach nothing but what a script may.

Lua is 5.1, as in Redis, brought by lupa. The state has no Python object: attribute access is denied,
and scripts get Lua functions around the server's (prelude.lua).

Memory is bounded. Where Lua finds no room it jumps to the last pcall, over whatever is between, and
Python's frames do not survive that. So Python gives Lua values only where there is room for certain:
while less than half of the memory is in use (`_is_roomy`). Otherwise it lifts the bound for that time,
and answers scripts in a table, `_box`.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Callable
from importlib import resources
from time import monotonic
from typing import Any, NamedTuple

from headwater.errors import CommandError
from headwater.limits import MAX_SCRIPT_MEMORY_BYTES
from headwater.resp.arguments import Arguments
from headwater.resp.replies import ReplyWriter
from headwater.server.identity import COMPATIBLE_VERSION
from headwater.server.services.scripting.cjson import CjsonEncoder, NotJSON, decode
from headwater.server.services.scripting.tailcalls import without_tail_calls
from headwater.server.services.scripting.values import ScriptFailed

log = logging.getLogger("headwater.scripts")

_LEVELS = (logging.DEBUG, logging.DEBUG, logging.INFO, logging.WARNING)

_GARBAGE_BYTES = 4 << 20
"""What Lua may hold beyond twice of what it held after the last whole collection. Its own collector
goes on in small steps while scripts run; a whole one after each run would cost more than the run."""

_DIRECT_WORDS = 1000
"""Values that are given to Lua, and taken from it, one by one; more are put in a table. Lua refuses
8000 (LUAI_MAXCSTACK)."""

_SMALL_BYTES = 4096
"""A text that need not be weighed once there is room at all."""

_CHUNK = b"@user_script"
"""What Lua calls a script in its errors."""

_WORDS, _BOXED_WORDS = 2, 3
"""What is in front of a list of words, and what says that it is in the box."""

_JSON_BYTES, _JSON_VALUE_BYTES = 4, 200
"""What a byte and a value of JSON take, in Python and Lua together."""


class Problem(NamedTuple):
    """What ended a script: the text of its error, and the line of the script if it is known."""

    text: bytes
    line: int | None


class Interpreter:
    """One Lua state with the prelude loaded. Raises `ImportError` where lupa is not installed.

    ``current`` is the run that goes on: its ``call``, ``set_resp`` and ``may_run`` are what the script
    reaches. ``arguments`` and ``reply`` are for the commands that it calls.
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
        self._most = MAX_SCRIPT_MEMORY_BYTES
        self._used: Callable[[], int] = self._lua.get_memory_used
        self._is_bound = True
        self._problems = (lua51.LuaError, RecursionError, MemoryError)
        self._type = lua51.lua_type
        self._null: Any = None
        self._deadline = math.inf
        self._collect_above = 0
        self._broken: BaseException | None = None
        self._box = self._lua.table(b"", b"")
        self.current: Any = None
        self.arguments = Arguments()
        self.reply = ReplyWriter(bytearray(), 2)
        load = self._lua.eval(b"function(text, name) return loadstring(text, name) end")

        def chunk(name: str, *given: Any) -> Any:
            text = resources.files(__package__).joinpath(f"{name}.lua").read_bytes()
            return load(text, f"@{name}".encode())(*given)

        host = self._host()
        parse, set_first_bytes, growth, coarse_growth, steps = chunk("patterns")
        matcher, charge, unfinished = chunk("matcher", host)
        slow = chunk("matching", parse, set_first_bytes, growth, steps, matcher, charge, unfinished)
        bounded = chunk("bounded", slow, parse, coarse_growth, steps, charge)
        value_of, words_of = chunk("replies", host)
        calls = chunk("calls", host, self._box, value_of, _CHUNK)
        self._compile, self._run, self._run_bounded = chunk(
            "prelude", host, bounded, words_of, _CHUNK, *calls
        )

    def kind(self, value: Any) -> str:
        """Lua's name of a value's type, ``nil`` for what Lua passes as a plain value."""
        return self._type(value) or "nil"

    def compile(self, text: bytes) -> Any:
        """A script's function. Raises `CommandError` with Lua's message."""
        problem = "not enough memory"
        self._unbound()
        if len(text) >= self.room:
            self._collect()
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
        return self._most - self._used()

    def make_room(self, size: int) -> None:
        """Have room for values of so many bytes until the answer to the script. Raises `ScriptFailed`
        when they are more than a script may have."""
        if size > self.room:
            raise ScriptFailed(b"ERR not enough memory for the command's reply")
        if not self._is_roomy(size):
            self._unbound()

    def memory_bytes(self) -> int:
        """What Lua holds, garbage included."""
        return int(self._lua.get_memory_used(total=True))

    def expired(self) -> bool:
        """Whether the script has had its time."""
        return monotonic() > self._deadline

    def run(
        self, script: Any, words: tuple[bytes, ...], key_count: int, seconds: float
    ) -> Any | Problem:
        """What a script returns for so many keys and the arguments behind them, as a word or a list of
        words (values.py), or what ended it; for so many seconds at most."""
        self._broken = None
        try:
            if len(words) <= _DIRECT_WORDS and self._is_roomy(_size(words)):
                self._deadline = monotonic() + seconds
                outcome = self._run(script, key_count, *words)
            else:
                self._unbound()
                keys = self._lua.table_from(words[:key_count])
                argv = self._lua.table_from(words[key_count:])
                self._deadline = monotonic() + seconds
                outcome = self._run_bounded(script, keys, argv)
            if isinstance(outcome, tuple):
                outcome = self._words(outcome)
        except self._problems as error:
            self._unbound()
            text = f"ERR {error}".encode("utf-8", "surrogateescape")
            outcome = Problem(text.partition(b"\n")[0], None)
        finally:
            self._deadline = math.inf
            if self._used() > self._collect_above:
                self._collect()
            if self._broken is not None:
                raise self._broken
        return outcome

    def _words(self, outcome: tuple[Any, ...]) -> Any | Problem:
        if outcome[0]:
            return outcome
        if outcome[0] is None:
            _, words, count = outcome
            return [words[index] for index in range(1, count + 1)]
        _, text, line = outcome
        return Problem(_text(text), line)

    def _collect(self) -> None:
        """Free what scripts have left, now that it may be most of what Lua holds."""
        self._unbound()
        self._lua.gccollect()
        self._collect_above = min(2 * self._used() + _GARBAGE_BYTES, self._most // 4)

    def _host(self) -> Any:
        """What the prelude builds on."""
        host = self._lua.table()
        version = COMPATIBLE_VERSION
        major, minor, patch = map(int, version.split(b"."))
        for name, value in {
            b"version": version,
            b"version_number": major << 16 | minor << 8 | patch,
            b"timeout": b"ERR the script ran longer than lua-time-limit and was ended; what it had "
            b"written stands",
            b"roomy_kilobytes": self._most // 2 >> 10,
            b"expired": self.expired,
            b"bound": self._bound,
            b"unbound": self._unbound,
            b"call": self._answering(self._on_call),
            b"setresp": self._answering(lambda words: self._on_setresp(*words)),
            b"acl_check_cmd": self._answering(self._on_acl_check),
            b"sha1hex": self._answering(lambda words: _sha1hex(*words)),
            b"log": self._answering(lambda words: self._on_log(*words)),
            b"without_tail_calls": self._answering(lambda words: without_tail_calls(*words)),
            b"set_null": self._set_null,
            b"json_encode": self._answering(lambda _: self._json_encode()),
            b"json_decode": self._answering(lambda words: self._json_decode(*words)),
        }.items():
            host[name] = value
        return host

    def _set_null(self, null: Any) -> None:
        self._null = null

    # What scripts reach, through the prelude.

    def _bound(self) -> None:
        self._lua.set_max_memory(self._most)
        self._is_bound = True

    def _unbound(self) -> None:
        self._lua.set_max_memory(0)
        self._is_bound = False

    def _is_roomy(self, size: int) -> bool:
        """Whether Lua, bounded, can take values of so many bytes for certain: the most that it asks
        for at once beside them is a larger table of its strings, a third of what it holds."""
        return self._is_bound and self._used() + 2 * size < self._most // 2

    def _answering(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function for the prelude: its value, or the text with which it has failed (`answer` in
        prelude.lua). Any other exception ends the script's run with it, whatever the script makes of
        it."""

        def answer(*arguments: Any) -> Any:
            if not self._is_roomy(0):
                self._unbound()
            ok = True
            try:
                value = function(arguments)
            except ScriptFailed as failed:
                ok, value = False, failed.args[0]
            except BaseException as error:
                self._unbound()
                self._broken = error
                raise
            many = isinstance(value, list)
            if many:
                if len(value) > _DIRECT_WORDS:
                    self._unbound()
            elif (
                isinstance(value, bytes)
                and len(value) > _SMALL_BYTES
                and not self._is_roomy(len(value))
            ):
                self._unbound()
            if self._is_bound:
                return (_WORDS, *value) if many else (ok, value)
            self._box[1] = self._lua.table_from(value) if many else value
            self._bound()
            return _BOXED_WORDS if many else int(ok)

        return answer

    def _on_call(self, words: tuple[Any, ...]) -> Any:
        return self.current.call(words)

    def _on_acl_check(self, words: tuple[Any, ...]) -> Any:
        return self.current.may_run(words)

    def _on_setresp(self, version: Any = None) -> None:
        if version not in {2, 3}:
            raise ScriptFailed(b"ERR RESP version must be 2 or 3.")
        self.current.set_resp(int(version))

    def _on_log(self, level: Any = None, *words: Any) -> None:
        if level not in range(len(_LEVELS)):
            raise ScriptFailed(b"ERR Invalid log level.")
        text = b" ".join(map(_text, words)).decode("utf-8", "backslashreplace")
        log.log(_LEVELS[int(level)], "%s", text.replace("\n", " "))

    def _json_encode(self) -> bytes:
        try:
            text = CjsonEncoder(self.kind, self._check_json).encode(self._box[2])
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
        size = _JSON_BYTES * len(text) + _JSON_VALUE_BYTES * values
        if size > self.room:
            raise ScriptFailed(b"not enough memory")
        self.make_room(size)
        try:
            return decode(text, self._lua.table, self._null)
        except NotJSON as error:
            raise ScriptFailed(str(error).encode("utf-8", "replace")) from None


def _size(words: tuple[bytes, ...]) -> int:
    total = 0
    for word in words:
        total += len(word)
    return total


def _deny(_object: object, name: Any, _setting: bool) -> Any:
    raise AttributeError(f"a script has no access to {name!r}")


def _text(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    return b"ERR unknown error" if value is None else str(value).encode()


def _sha1hex(text: Any) -> bytes:
    return hashlib.sha1(_text(text), usedforsecurity=False).hexdigest().encode()
