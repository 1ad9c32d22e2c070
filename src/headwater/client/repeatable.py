"""Which commands may run twice, and how long an answer may take.

Rule 1. A command is *repeatable* when running it twice leaves what running it once leaves: reads,
        what a connection says about itself, XACK, XADD with an idempotent id. Every other command,
        and every command that is not known here, is not.
Rule 2. An answer may take as long as its command asked to wait (BLOCK), and the usual time more.

A command is the sequence of its arguments, as it was given to a client library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from math import inf, isfinite
from typing import Any

from headwater.commands import table

Command = Sequence[Any]
"""A command's name and arguments; the first may hold several words (``"XINFO STREAM"``)."""

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
"""Names, in upper case, of the commands that may run twice whatever their arguments."""

_CONTAINERS = frozenset(name.split()[0] for name in REPEATABLE if " " in name)

_XADD_FLAGS = frozenset({"NOMKSTREAM", "KEEPREF", "DELREF", "ACKED"})


def command_name(command: Command) -> str:
    """The first word, in upper case.

    >>> command_name((b"xinfo stream", "orders"))
    'XINFO'
    """
    return _words(command[0])[0]


def is_repeatable(command: Command) -> bool:
    """Whether running the command twice is as good as once; EXEC never is by itself.

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
        return _has_idempotent_id(_all_words(command))
    return False


def wait_seconds(command: Command) -> float:
    """How long the command asks the store to wait for something; infinity for ever.

    >>> wait_seconds(("XREAD", "BLOCK", 0, "STREAMS", "orders", "$"))
    inf
    """
    place = _WAITING.get(command_name(command))
    return 0.0 if place is None else place(_all_words(command))


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


def _has_idempotent_id(words: list[str]) -> bool:
    """Whether XADD's options, between key and id, hold IDMP or IDMPAUTO."""
    index = 2
    while index < len(words):
        word = words[index]
        if word in {"IDMP", "IDMPAUTO"}:
            return True
        if word in _XADD_FLAGS:
            index += 1
        elif word in {"MAXLEN", "MINID", "LIMIT"}:
            index += 3 if words[index + 1 : index + 2] in (["="], ["~"]) else 2
        else:
            return False
    return False


def _block(words: list[str]) -> float:
    """XREAD and XREADGROUP: the milliseconds after BLOCK, which comes before STREAMS."""
    index = 4 if words[1:2] == ["GROUP"] else 1
    while index + 1 < len(words) and words[index] != "STREAMS":
        if words[index] == "BLOCK":
            return _limit(words[index + 1], 1000)
        index += 1
    return 0.0


def _limit(word: str, per_second: int) -> float:
    """A time limit; 0 is for ever. The store refuses other words at once, which takes no time."""
    try:
        limit = float(word)
    except ValueError:
        return 0.0
    if not isfinite(limit) or limit < 0:
        return 0.0
    return limit / per_second if limit else inf


def _argument(index: int, *, per_second: int = 1) -> Callable[[list[str]], float]:
    """A time limit at a fixed place."""

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
