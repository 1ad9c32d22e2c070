"""Decides whether a command may run twice, and reads how long it may block.

Rule 1. A command is *repeatable* if running it twice has the effect of running it once: reads, commands
        about the connection itself, XACK, XADD with an idempotent id. Other commands and unknown
        commands are not repeatable.
Rule 2. A reply may take as long as its command may block (BLOCK), plus the usual time.

A command is the sequence of its arguments, as passed to a client library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from math import inf, isfinite
from typing import Any, Final

from headwater.commands import table

Command = Sequence[Any]
"""A command's name and arguments; the first item may have several words (``"XINFO STREAM"``)."""

_OF_CONNECTIONS = (
    "PING ECHO HELLO AUTH SELECT QUIT RESET READONLY READWRITE MULTI DISCARD WATCH UNWATCH MONITOR "
    "SUBSCRIBE PSUBSCRIBE SSUBSCRIBE UNSUBSCRIBE PUNSUBSCRIBE SUNSUBSCRIBE"
)
_QUESTIONS = "TIME INFO ROLE LASTSAVE COMMAND"
_SUBCOMMANDS = {
    "ACL": "CAT GETUSER LIST USERS WHOAMI",
    "CLIENT": "GETNAME ID INFO LIST MAINT_NOTIFICATIONS NO-EVICT NO-TOUCH SETINFO SETNAME TRACKING",
    "CLUSTER": "INFO NODES SHARDS SLOTS",
    "COMMAND": "COUNT DOCS GETKEYS GETKEYSANDFLAGS INFO LIST",
    "CONFIG": "GET",
    "FUNCTION": "DUMP LIST STATS",
    "LATENCY": "DOCTOR HISTORY LATEST",
    "MEMORY": "DOCTOR STATS USAGE",
    "MODULE": "LIST",
    "OBJECT": "ENCODING FREQ IDLETIME REFCOUNT",
    "PUBSUB": "CHANNELS NUMPAT NUMSUB SHARDCHANNELS SHARDNUMSUB",
    "SCRIPT": "EXISTS LOAD",
    "SLOWLOG": "GET LEN",
}
_IDEMPOTENT_WRITES = ("XACK",)


def _read_only(rows: Iterable[table.Command]) -> Iterable[str]:
    for row in rows:
        if "readonly" in row.flags:
            yield row.name.upper().replace("|", " ")
        yield from _read_only(row.subcommands.values())


REPEATABLE = frozenset(
    [
        *_read_only(table.COMMANDS.values()),
        *_OF_CONNECTIONS.split(),
        *_QUESTIONS.split(),
        *_IDEMPOTENT_WRITES,
        *(f"{name} {word}" for name, words in _SUBCOMMANDS.items() for word in words.split()),
    ]
)
"""Names, in upper case, of the commands that may run twice with any arguments."""

_CONTAINERS = frozenset(name.split()[0] for name in REPEATABLE if " " in name)

_XADD_FLAGS = frozenset({"NOMKSTREAM", "KEEPREF", "DELREF", "ACKED"})


def command_name(command: Command) -> str:
    """Return the first word, in upper case.

    >>> command_name((b"xinfo stream", "orders"))
    'XINFO'
    """
    return _words(command[0])[0]


def is_repeatable(command: Command) -> bool:
    """Return whether running the command twice has the effect of running it once; False for EXEC.

    >>> is_repeatable(("XLEN", "orders")), is_repeatable(("XADD", "orders", "*", "a", "1"))
    (True, False)
    """
    words = _words(command[0])
    name = words[0]
    if name in REPEATABLE and (name not in _CONTAINERS or len(words) + len(command) == 2):
        return True
    if name in _CONTAINERS:
        given = [*words[1:2], *map(_word, command[1:2])]
        return bool(given) and f"{name} {given[0]}" in REPEATABLE
    if name == "XADD":
        return _has_idempotent_id([*words, *command[1:]] if len(words) > 1 else command)
    return False


def wait_seconds(command: Command) -> float:
    """Return the seconds that the command may block in the store; infinity for no limit.

    >>> wait_seconds(("XREAD", "BLOCK", 0, "STREAMS", "orders", "$"))
    inf
    """
    place = _WAITING.get(command_name(command))
    if place is None:
        return 0.0
    # The option is before STREAMS, and a read may name a thousand streams.
    return place(_all_words(command[:OPTIONS] if place is _block else command))


OPTIONS: Final = 32
"""Number of words at the beginning of a read that include all its options."""


@lru_cache(maxsize=1024)
def _words(first: str | bytes) -> tuple[str, ...]:
    text = first if isinstance(first, str) else bytes(first).decode("latin-1")
    return tuple(text.upper().split()) or ("",)


def _word(argument: Any) -> str:
    if isinstance(argument, bytes | bytearray | memoryview):
        return bytes(argument[:64]).decode("latin-1").upper()
    return str(argument)[:64].upper()


def _all_words(command: Command) -> list[str]:
    return [*_words(command[0]), *map(_word, command[1:])]


def _has_idempotent_id(command: Command) -> bool:
    """Return whether XADD's options, between key and id, include IDMP or IDMPAUTO."""
    index = 2
    while index < len(command):
        word = _word(command[index])
        if word in {"IDMP", "IDMPAUTO"}:
            return True
        if word in _XADD_FLAGS:
            index += 1
        elif word in {"MAXLEN", "MINID", "LIMIT"}:
            index += 3 if [*map(_word, command[index + 1 : index + 2])] in (["="], ["~"]) else 2
        else:
            return False
    return False


def _block(words: list[str]) -> float:
    """Return the seconds of the BLOCK option of XREAD or XREADGROUP, which is before STREAMS."""
    index = 4 if words[1:2] == ["GROUP"] else 1
    while index + 1 < len(words) and words[index] != "STREAMS":
        if words[index] == "BLOCK":
            return _limit(words[index + 1], 1000)
        index += 1
    return 0.0


def _limit(word: str, per_second: int) -> float:
    """Return a time limit in seconds; infinity if ``word`` is 0, which means no limit. A word that is not a
    valid limit counts as 0 seconds, because the store rejects it immediately."""
    try:
        limit = float(word)
    except ValueError:
        return 0.0
    if not isfinite(limit) or limit < 0:
        return 0.0
    return limit / per_second if limit else inf


def _argument(index: int, *, per_second: int = 1) -> Callable[[list[str]], float]:
    """Return a function that reads a time limit from the word at ``index``."""

    def limit(words: list[str]) -> float:
        return _limit(words[index], per_second) if -len(words) <= index < len(words) else 0.0

    return limit


_WAITING: dict[str, Callable[[list[str]], float]] = {
    "XREAD": _block,
    "XREADGROUP": _block,
    **dict.fromkeys(
        ("BLPOP", "BRPOP", "BLMOVE", "BRPOPLPUSH", "BZPOPMIN", "BZPOPMAX"), _argument(-1)
    ),
    **dict.fromkeys(("BLMPOP", "BZMPOP"), _argument(1)),
    "WAIT": _argument(2, per_second=1000),
    "WAITAOF": _argument(3, per_second=1000),
    "MONITOR": lambda _words: inf,
}
