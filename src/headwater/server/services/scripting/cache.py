"""The cache of scripts by the SHA-1 of their text. Each is compiled once.

Rule 1. Scripts of SCRIPT LOAD remain until SCRIPT FLUSH. Of the scripts of EVAL the 500 most recently used
        remain: otherwise a client that puts values into the text of scripts would fill the memory.
Rule 2. Scripts are not state: the journal has the changes by scripts, and a restart forgets the scripts.

Source: redis.io, EVAL; Redis 7.4 for rule 1 (eval.c, LRU_LIST_LENGTH).
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from contextlib import suppress
from typing import Any

from headwater.commands.dispatch import KnownCommand
from headwater.errors import CommandError
from headwater.resp.arguments import Arguments
from headwater.server.services.scripting.interpreter import Interpreter

MOST_FROM_EVAL = 500

_SCRIPT_BYTES = 600
"""Estimated size of a `CachedScript`, its SHA-1, its dictionary entry and lupa's object for its
function."""

_BY_TEXT = frozenset({b"EVAL", b"EVAL_RO"})
_BY_SHA = frozenset({b"EVALSHA", b"EVALSHA_RO"})
SCRIPTS = _BY_TEXT | _BY_SHA
"""The commands that run a script."""

_FLAGS = {b"no-writes", b"allow-oom", b"allow-stale", b"no-cluster", b"allow-cross-slot-keys"}


Flags = frozenset[bytes]


class CachedScript:
    """A compiled script. ``flags`` are those of its shebang; None if it has no shebang."""

    def __init__(self, sha: bytes, function: Any, flags: Flags | None) -> None:
        self.sha = sha
        self.function = function
        self.flags = flags
        self.read_only = flags is not None and b"no-writes" in flags
        self.ignores_limit = flags is not None and b"allow-oom" in flags
        """True if its commands may take more memory than maxmemory allows."""


class Scripts:
    """The scripts of a node, and the interpreter that executes them."""

    def __init__(self) -> None:
        self._loaded: dict[bytes, CachedScript] = {}
        self._evaluated: OrderedDict[bytes, CachedScript] = OrderedDict()
        self._interpreter: Interpreter | None = None
        self.evicted = 0
        """Number of scripts of EVAL that later ones have evicted since the start or CONFIG RESETSTAT."""

    @property
    def interpreter(self) -> Interpreter:
        """The interpreter, which is created with the first script."""
        if self._interpreter is None:
            self._interpreter = Interpreter()
        return self._interpreter

    def vm_bytes(self) -> int:
        """Return Lua's memory; 0 before the first script."""
        return self._interpreter.memory_bytes() if self._interpreter is not None else 0

    def table_bytes(self) -> int:
        """Return the estimated memory of scripts outside Lua."""
        return len(self) * _SCRIPT_BYTES

    def memory_bytes(self) -> int:
        """Return the memory of scripts, in Lua and outside."""
        return self.vm_bytes() + self.table_bytes()

    def __len__(self) -> int:
        return len(self._loaded) + len(self._evaluated)

    def find(self, sha: bytes) -> CachedScript | None:
        """Find a script by its SHA-1 in hexadecimal digits of either case. Return None if it is not cached."""
        name = sha.lower()
        found = self._loaded.get(name)
        if found is None:
            found = self._evaluated.get(name)
            if found is not None:
                self._evaluated.move_to_end(name)
        return found

    def take(self, text: bytes, *, loaded: bool) -> CachedScript:
        """Return the script of a text, and compile it if it is new. Raises `CommandError`."""
        sha = hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()
        script = self.find(sha)
        if script is None:
            body, flags = _shebang(text)
            script = CachedScript(sha, self.interpreter.compile(body), flags)
            self._evaluated[sha] = script
        if loaded:
            self._evaluated.pop(sha, None)
            self._loaded[sha] = script
        elif len(self._evaluated) > MOST_FROM_EVAL:
            self._evaluated.popitem(last=False)
            self.evicted += 1
        return script

    def declared(self, known: KnownCommand, arguments: Arguments) -> Flags | None:
        """Return the flags that the script of a request declares in its shebang; None if it has no shebang, if the
        script is unknown, or if the command does not run a script."""
        if known.name in _BY_SHA:
            script = self.find(arguments.bytes(1))
            return None if script is None else script.flags
        if known.name in _BY_TEXT:
            with suppress(CommandError):
                return _shebang(arguments.bytes(1))[1]
        return None

    def flush(self) -> None:
        """Forget all scripts and the interpreter with its memory."""
        self._loaded.clear()
        self._evaluated.clear()
        self._interpreter = None


def _shebang(text: bytes) -> tuple[bytes, Flags | None]:
    """Parse a shebang such as ``#!lua flags=no-writes,allow-stale``. Return the text to compile and the flags,
    which are None without a shebang. Raises `CommandError`."""
    if not text.startswith(b"#!"):
        return text, None
    line, newline, rest = text.partition(b"\n")
    if not newline:
        raise CommandError("ERR Invalid script shebang")
    engine, *options = line.split()
    if engine != b"#!lua":
        raise CommandError(f"ERR Unexpected engine in script shebang: {_shown(engine)}")
    flags: set[bytes] = set()
    for option in options:
        name, _, value = option.partition(b"=")
        if name != b"flags":
            raise CommandError(f"ERR Unknown lua shebang option: {_shown(option)}")
        for flag in filter(None, value.split(b",")):
            if flag not in _FLAGS:
                raise CommandError(f"ERR Unexpected flag in script shebang: {_shown(flag)}")
            flags.add(flag)
    return b"\n" + rest, frozenset(flags)


def _shown(text: bytes) -> str:
    return text.decode("utf-8", "surrogateescape")
