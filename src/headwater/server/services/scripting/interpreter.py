"""A Lua state that restricts the access of scripts.

The version of Lua is 5.1, as in Redis, provided by lupa. Scripts hold no Python object: attribute
access is denied, and scripts get Lua functions that wrap the server's (calls.lua).

Memory is limited. If Lua cannot allocate, it jumps to the last pcall, over all C frames in between, and Python's
frames do not survive that. Therefore Python passes values to Lua only if there is certainly room: while less than
half of the memory is used (`_is_roomy`). Otherwise it lifts the limit for that time, and passes values to scripts
in a table, `_box`.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Callable
from time import monotonic_ns
from typing import Any, NamedTuple

from headwater.common.limits import (
    MAX_LOG_MESSAGE,
    MAX_SCRIPT_CALL_BYTES,
    MAX_SCRIPT_MEMORY_BYTES,
    MAX_SCRIPT_TEXT_BYTES,
)
from headwater.errors import CommandError
from headwater.resp.arguments import Arguments
from headwater.resp.replies import ReplyWriter
from headwater.server.identity import COMPATIBLE_VERSION
from headwater.server.services.scripting.cjson import (
    MAX_DEPTH,
    CjsonEncoder,
    EncodeOptions,
    NotJSON,
    decode,
    deeply,
)
from headwater.server.services.scripting.libraries import (
    Packer,
    Unpacker,
    as_integer,
    bits,
    low_word,
    lua_value,
    struct_pack,
    struct_size,
    struct_unpack,
)
from headwater.server.services.scripting.tailcalls import without_tail_calls
from headwater.server.services.scripting.values import ScriptFailed

log = logging.getLogger("headwater.scripts")

_LEVELS = (logging.DEBUG, logging.DEBUG, logging.INFO, logging.WARNING)

_GARBAGE_BYTES = 4 << 20
"""Memory that Lua may use beyond twice the memory after the last full collection. Lua's collector
works in small steps while scripts run; a full collection after each run would cost more than the
run."""

_DIRECT_WORDS = 1000
"""Maximum number of values that are passed to and from Lua one by one; more are put into a table. Lua
refuses 8000 (LUAI_MAXCSTACK)."""

_SMALL_BYTES = 4096
"""Maximum size, in bytes, of a text that is passed to Lua without another check of Lua's room."""

_LOGGED_BYTES = 16 * MAX_LOG_MESSAGE
"""Maximum number of bytes of a log message that are read. The log cuts the message to a sixteenth of that."""

_UNCHECKED_CALLS = 16
"""Number of calls of functions of bit between two checks of the clock. Other functions of libraries, and commands
(calls.py), check it each time, because one call may take long, and Lua counts only its own instructions."""

TIMEOUT = (
    b"ERR the script ran longer than lua-time-limit and was stopped; what it wrote before remains"
)

_CHUNK = b"@user_script"
"""The chunk name of a script in Lua's errors."""

_WORDS, _BOXED_WORDS, _COUNTED, _BOXED_COUNTED = 2, 3, 4, 5
"""Codes before a list of words, for words in the box, before the text of an error that is already
counted in statistics, and for such a text in the box."""

_JSON_BYTES, _JSON_VALUE_BYTES = 4, 200
"""Memory of a byte and of a value of JSON, in Python and Lua together, in bytes."""

_JSON_VALUES = 500_000
"""Maximum number of values that one call decodes, in a third of a second. Each comma and bracket counts as one."""


class Problem(NamedTuple):
    """The reason why a script ended: the text of the error, the line of the script if known, and True
    if statistics have counted the error."""

    text: bytes
    line: int | None
    counted: bool


class Interpreter:
    """A Lua state with the prelude loaded. Raises `ImportError` if lupa is not installed.

    ``current`` is the current run; the script can call its ``call``, ``set_resp`` and ``may_run``. The
    commands that it calls use ``arguments`` and ``reply``. The run must end by ``deadline_ns`` (monotonic).
    """

    def __init__(self) -> None:
        # Only scripts need these modules; a server without scripts starts sooner.
        from importlib import resources

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
        self.deadline_ns = math.inf
        self._collect_above = 0
        self._broken: BaseException | None = None
        self._calls = 0
        """Number of calls of functions of bit since the clock was checked."""
        self._box = self._lua.table(b"", b"")
        self._in_box = object()
        """First argument of a call whose arguments are in the box. Their number is the second argument."""
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
        bounded = chunk("bounded", slow, parse, coarse_growth, steps, charge, MAX_SCRIPT_CALL_BYTES)
        value_of, words_of, size_problem = chunk("replies", host)
        ask, *calls = chunk("calls", host, self._box, value_of, size_problem, _CHUNK)
        libraries = chunk("libraries", host, self._box, size_problem, ask, calls[3])
        self._compile, self._run, self._run_bounded = chunk(
            "prelude", host, bounded, words_of, _CHUNK, *libraries, *calls
        )

    def kind(self, value: Any) -> str:
        """Return Lua's name of a value's type; ``nil`` for values that are plain Python values."""
        return self._type(value) or "nil"

    def compile(self, text: bytes) -> Any:
        """Compile a script to a function. Raises `CommandError` with Lua's message."""
        if len(text) > MAX_SCRIPT_TEXT_BYTES:
            raise CommandError(
                f"ERR Error compiling script (new function): {len(text)} bytes are too many for a script, which may "
                f"have {MAX_SCRIPT_TEXT_BYTES}: pass data as arguments"
            )
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
        """Memory that scripts may still allocate, in bytes."""
        return self._most - self._used()

    def make_room(self, size: int) -> None:
        """Make room for values of ``size`` bytes until the script is answered. Raises
        `ScriptFailed` if that exceeds a script's memory."""
        if size > self.room:
            raise ScriptFailed(b"ERR not enough memory for the command's reply")
        if not self._is_roomy(size):
            self._unbound()

    def memory_bytes(self) -> int:
        """Return Lua's memory, including garbage."""
        return int(self._lua.get_memory_used(total=True))

    def expired(self) -> bool:
        """Return whether the script has used up its time."""
        return monotonic_ns() > self.deadline_ns

    def run(
        self, script: Any, words: tuple[bytes, ...], key_count: int, seconds: float
    ) -> Any | Problem:
        """Run a script with ``key_count`` keys and the arguments after them, for at most
        ``seconds``. Return its value as a word or a list of words (values.py), or the problem that
        ended it."""
        self._broken = None
        try:
            if len(words) <= _DIRECT_WORDS and self._is_roomy(_size(words)):
                self.deadline_ns = monotonic_ns() + seconds * 1e9
                outcome = self._run(script, key_count, *words)
            else:
                self._unbound()
                keys = self._lua.table_from(words[:key_count])
                argv = self._lua.table_from(words[key_count:])
                self.deadline_ns = monotonic_ns() + seconds * 1e9
                outcome = self._run_bounded(script, keys, argv)
            if isinstance(outcome, tuple):
                outcome = self._words(outcome)
        except self._problems as error:
            self._unbound()
            text = f"ERR {error}".encode("utf-8", "surrogateescape")
            outcome = Problem(text.partition(b"\n")[0], None, False)
        finally:
            self.deadline_ns = math.inf
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
        _, text, line, counted = outcome
        return Problem(_text(text), line, counted)

    def _collect(self) -> None:
        """Run a full collection, and set the memory use at which the next one runs."""
        self._unbound()
        self._lua.gccollect()
        self._collect_above = min(2 * self._used() + _GARBAGE_BYTES, self._most // 4)

    def _host(self) -> Any:
        """Create the table of server functions for the prelude."""
        host = self._lua.table()
        version = COMPATIBLE_VERSION
        major, minor, patch = map(int, version.split(b"."))
        for name, value in {
            b"version": version,
            b"version_number": major << 16 | minor << 8 | patch,
            b"timeout": TIMEOUT,
            b"text_bytes": MAX_SCRIPT_TEXT_BYTES,
            b"call_bytes": MAX_SCRIPT_CALL_BYTES,
            b"passed_bytes": self._most,
            b"roomy_kilobytes": self._most // 2 >> 10,
            b"expired": self.expired,
            b"bound": self._bound,
            b"unbound": self._unbound,
            b"in_box": self._in_box,
            b"call": self._answering(self._on_call, 0),
            b"setresp": self._answering(lambda words: self._on_setresp(*words)),
            b"acl_check_cmd": self._answering(self._on_acl_check),
            b"sha1hex": self._answering(lambda words: _sha1hex(*words)),
            b"log": self._answering(lambda words: self._on_log(*words)),
            b"without_tail_calls": self._answering(lambda words: without_tail_calls(*words)),
            b"set_null": self._set_null,
            b"json_encode": self._answering(lambda words: self._json_encode(*words)),
            b"json_decode": self._answering(lambda words: self._json_decode(*words)),
            b"bits": self._answering(lambda words: bits(*words), 1),
            b"struct_pack": self._answering(lambda words: struct_pack(*words)),
            b"struct_unpack": self._answering(lambda words: struct_unpack(*words)),
            b"struct_size": self._answering(lambda words: struct_size(*words)),
            b"msgpack_pack": self._answering(lambda words: self._pack(*words)),
            b"msgpack_unpack": self._answering(lambda words: self._unpack(*words)),
        }.items():
            host[name] = value
        return host

    def _set_null(self, null: Any) -> None:
        self._null = null

    # Functions that the prelude can call.

    def _bound(self) -> None:
        self._lua.set_max_memory(self._most)
        self._is_bound = True

    def _unbound(self) -> None:
        self._lua.set_max_memory(0)
        self._is_bound = False

    def _is_roomy(self, size: int) -> bool:
        """Return whether Lua, with its limit, can certainly take values of this size. The margin covers a larger table
        of Lua's strings, a third of the memory in use, which Lua may allocate at the same time."""
        return self._is_bound and self._used() + 2 * size < self._most // 2

    def _answering(
        self, function: Callable[..., Any], weight: int = _UNCHECKED_CALLS
    ) -> Callable[..., Any]:
        """Wrap a function for the prelude. The wrapper returns the function's value, or the text of its error
        (`answer` in calls.lua). Any other exception ends the run, even if the script catches the error."""

        def answer(*arguments: Any) -> Any:
            if not self._is_roomy(0):
                self._unbound()
            ok: bool | int = True
            try:
                self._calls += weight
                if self._calls >= _UNCHECKED_CALLS:
                    if self.expired():
                        raise ScriptFailed(TIMEOUT)
                    self._calls = 0
                if arguments and arguments[0] is self._in_box:
                    arguments = self._boxed(int(arguments[1]))
                value = function(arguments)
            except ScriptFailed as failed:
                ok, value = _COUNTED if failed.counted else False, failed.args[0]
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
            if ok is not True and ok:
                return _BOXED_COUNTED
            return _BOXED_WORDS if many else int(ok)

        return answer

    def _boxed(self, count: int) -> tuple[Any, ...]:
        """Take the arguments of a call from the box, where Lua puts many of them."""
        table, self._box[2] = self._box[2], False
        return tuple([table[index] for index in range(1, count + 1)])

    def _on_call(self, words: tuple[Any, ...]) -> Any:
        return self.current.call(words)

    def _on_acl_check(self, words: tuple[Any, ...]) -> Any:
        return self.current.may_run(words)

    def _on_setresp(self, version: Any) -> None:
        if version not in {2, 3}:
            raise ScriptFailed(b"ERR RESP version must be 2 or 3.")
        self.current.set_resp(int(version))

    def _on_log(self, level: Any, *words: Any) -> None:
        if level not in range(len(_LEVELS)):
            raise ScriptFailed(b"ERR Invalid log level.")
        joined = b" ".join(_text(word)[:_LOGGED_BYTES] for word in words)
        text = joined[:_LOGGED_BYTES].decode("utf-8", "backslashreplace")
        log.log(_LEVELS[int(level)], "%s", text.replace("\n", " "))

    def _json_encode(self, *options: Any) -> bytes:
        try:
            text: str = deeply(
                lambda: CjsonEncoder(self.kind, self._check_json, EncodeOptions(*options)).encode(
                    self._box[2]
                )
            )
        except NotJSON as error:
            raise ScriptFailed(str(error).encode()) from None
        except RecursionError:
            text = f"Cannot serialise, excessive nesting ({MAX_DEPTH + 1})"
            raise ScriptFailed(text.encode()) from None
        return text.encode("utf-8", "surrogateescape")

    def _pack(self, count: Any) -> bytes:
        packer, table = Packer(self.kind, self._check_json), self._box[2]
        try:
            for index in range(1, int(count) + 1):
                packer.add(table[index])
        except NotJSON as error:
            raise ScriptFailed(str(error).encode()) from None
        return bytes(packer.made)

    def _unpack(self, data: bytes, limit: float, offset: float) -> Any:
        """Unpack at most ``limit`` values (0: all). Return a table with their number and the offset
        after them, -1 at the end."""
        limit, offset = as_integer(limit), as_integer(offset)
        # Redis's errors show the offset as int, and the length as limit.
        if limit < 0 or offset < 0:
            text = f"offset of {low_word(offset)} and limit of {len(data)}"
            raise ScriptFailed(f"Invalid request to unpack with {text}.".encode())
        if offset > len(data):
            text = f"Start offset {low_word(offset)} greater than input length {len(data)}."
            raise ScriptFailed(text.encode())

        def unpacked() -> tuple[Any, int, int]:
            unpacker, values = Unpacker(data, offset, self._check_values), list[Any]()
            while unpacker.at < len(data) and (not limit or len(values) < limit):
                values.append(unpacker.next())
            self.make_room(_JSON_BYTES * len(data) + _JSON_VALUE_BYTES * unpacker.values)
            return lua_value(values, self._lua.table), len(values), unpacker.at

        try:
            made, count, at = deeply(unpacked)
        except NotJSON as error:
            raise ScriptFailed(str(error).encode()) from None
        except RecursionError:
            raise ScriptFailed(b"Bad data format in input.") from None
        made[b"count"] = count
        made[b"offset"] = at if at < len(data) else -1
        return made

    def _check_json(self, length: int) -> None:
        if length > MAX_SCRIPT_CALL_BYTES:
            raise NotJSON(_too_long(length, MAX_SCRIPT_CALL_BYTES))
        if length > self.room:
            raise NotJSON("not enough memory")
        if self.expired():
            raise NotJSON("the script ran for too long")

    def _check_values(self, values: int) -> None:
        if values > _JSON_VALUES:
            raise NotJSON(_too_many(values))
        self._check_json(0)
        if _JSON_VALUE_BYTES * values > self.room:
            raise NotJSON("not enough memory")

    def _json_decode(self, text: Any, max_depth: Any, invalid_numbers: Any) -> Any:
        if not isinstance(text, bytes):
            raise ScriptFailed(b"Expected a string")
        if len(text) > MAX_SCRIPT_TEXT_BYTES:
            raise ScriptFailed(_too_long(len(text), MAX_SCRIPT_TEXT_BYTES).encode())
        values = text.count(b",") + text.count(b"[") + text.count(b"{")
        size = _JSON_BYTES * len(text) + _JSON_VALUE_BYTES * values
        if size > self.room:
            raise ScriptFailed(b"not enough memory")
        if values > _JSON_VALUES:
            raise ScriptFailed(_too_many(values).encode())
        self.make_room(size)
        try:
            return deeply(
                lambda: decode(
                    text,
                    self._lua.table,
                    self._null,
                    max_depth=int(max_depth),
                    invalid_numbers=bool(invalid_numbers),
                )
            )
        except NotJSON as error:
            raise ScriptFailed(str(error).encode("utf-8", "replace")) from None
        except RecursionError:
            problem = f"Found too many nested data structures ({MAX_DEPTH + 1})"
            raise ScriptFailed(problem.encode()) from None


def _size(words: tuple[bytes, ...]) -> int:
    total = 0
    for word in words:
        total += len(word)
    return total


def _too_long(length: int, most: int) -> str:
    return f"{length} bytes are too many for one call, which may handle {most}: work on parts"


def _too_many(values: int) -> str:
    return f"{values} values are too many for one call, which may decode {_JSON_VALUES}"


def _deny(_object: object, name: Any, _setting: bool) -> Any:
    raise AttributeError(f"a script cannot access {name!r}")


def _text(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    return b"ERR unknown error" if value is None else str(value).encode()


def _sha1hex(text: Any) -> bytes:
    return hashlib.sha1(_text(text), usedforsecurity=False).hexdigest().encode()
