"""Streams to dump and restore on other servers, and the commands by which two servers are compared.

Each stream is a list of commands, so that it can be created on a real server and on Headwater.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from headwater.testing.replies import Reply

Command = tuple[bytes, ...]
Run = Callable[[Sequence[Command]], list[Reply]]
"""Runs commands on a server and returns the replies."""

KEY = b"s"


def command(text: str) -> Command:
    return tuple(word.encode() for word in text.split())


def commands(*texts: str) -> list[Command]:
    return [command(text) for text in texts]


def added(first: int, count: int, *fields: bytes) -> list[Command]:
    """Return commands that add ``count`` entries with the same fields."""
    return [(b"XADD", KEY, b"%d-0" % ms, *fields) for ms in range(first, first + count)]


def many(count: int) -> list[Command]:
    """Return entries of various sizes: repeated and changing field names, integers, binary data."""
    random = Random(count)
    found: list[Command] = []
    ms = 0
    for _ in range(count):
        ms += random.choice((1, 1, 1, 50, 10**6))
        pairs: list[bytes] = []
        for field in range(random.choice((1, 2, 2, 2, 5))):
            name = b"field-%d" % field if random.random() < 0.9 else random.randbytes(3)
            value = random.choice(
                (
                    b"%d" % random.randrange(-(10 ** random.randrange(1, 19)), 10**6),
                    b"x" * random.choice((0, 1, 63, 64, 200)),
                    random.randbytes(random.randrange(20)),
                )
            )
            pairs += [name, value]
        found.append((b"XADD", KEY, b"%d-%d" % (ms, random.randrange(3)), *pairs))
    return found


INTEGERS = [
    b"0", b"-0", b"00", b"1", b"-1", b"127", b"128", b"4095", b"4096", b"-4096", b"-4097", b"32767",
    b"32768", b"-32768", b"8388607", b"8388608", b"2147483647", b"2147483648", b"-2147483649",
    b"9223372036854775807", b"9223372036854775808", b"-9223372036854775808", b"+1", b" 1", b"1 ",
    b"1.0", b"", b"1e3", b"18446744073709551615",
]  # fmt: skip

GROUP = commands(
    "XGROUP CREATE s g 0",
    "XREADGROUP GROUP g al COUNT 3 STREAMS s >",
    "XREADGROUP GROUP g bo COUNT 2 STREAMS s >",
    "XCLAIM s g cy 0 2-0 TIME 1600000000000 RETRYCOUNT 7 JUSTID",
    "XGROUP CREATECONSUMER s g idle",
)

STREAMS: dict[str, list[Command]] = {
    "one entry": added(1, 1, b"a", b"1"),
    "many entries": many(1000),
    "integers": [
        (b"XADD", KEY, b"%d-0" % (at + 1), b"value", text) for at, text in enumerate(INTEGERS)
    ],
    "integers as names": [
        (b"XADD", KEY, b"%d-0" % (at + 1), text, b"value") for at, text in enumerate(INTEGERS)
    ],
    "large entries": [
        *added(1, 2, b"small", b"1"),
        *added(3, 1, b"large", b"z" * 100_000),
        *added(4, 2, b"small", b"1"),
        *added(6, 1, b"n" * 5000, b"v" * 17_000, b"b", b"\0\xff\r\n"),
    ],
    "the greatest ids": [
        (b"XADD", KEY, b"0-1", b"a", b"1"),
        (b"XADD", KEY, b"18446744073709551615-0", b"a", b"1"),
        (b"XADD", KEY, b"18446744073709551615-18446744073709551614", b"a", b"1"),
    ],
    "nodes of three": [
        *commands("CONFIG SET stream-node-max-entries 3"),
        *added(1, 10, b"a", b"1"),
        *commands("XDEL s 1-0 5-0 10-0", "XADD s 20-0 a 1"),
    ],
    "deleted": [*added(1, 250, b"a", b"1"), *commands("XDEL s 1-0 100-0 101-0 150-0 250-0")],
    "trimmed": [*added(1, 250, b"a", b"1"), *commands("XTRIM s MAXLEN 120")],
    "trimmed, then deleted": [
        *added(1, 250, b"a", b"1"),
        *commands("XTRIM s MINID 101", "XDEL s 101-0 102-0", "XTRIM s MAXLEN 120"),
    ],
    "empty": commands("XGROUP CREATE s g $ MKSTREAM"),
    "emptied": [*added(1, 3, b"a", b"1"), *commands("XDEL s 1-0 2-0 3-0")],
    "counters set": [
        *added(1, 3, b"a", b"1"),
        *commands("XSETID s 99-9 ENTRIESADDED 500 MAXDELETEDID 50-1"),
    ],
    "a group": [*added(1, 9, b"a", b"1"), *GROUP],
    "a group whose entries are gone": [
        *added(1, 9, b"a", b"1"),
        *GROUP,
        *commands("XDEL s 2-0 4-0", "XTRIM s MINID 2"),
    ],
    "groups": [
        *added(1, 9, b"a", b"1"),
        *GROUP,
        *commands("XGROUP CREATE s ahead 99-0", "XGROUP CREATE s known 4-0 ENTRIESREAD 4"),
        (b"XGROUP", b"CREATE", KEY, b"", b"$"),
        (b"XGROUP", b"CREATECONSUMER", KEY, b"", b""),
        (b"XGROUP", b"CREATE", KEY, b"\0\xff 12", b"0"),
        (b"XREADGROUP", b"GROUP", b"\0\xff 12", b"\r\n", b"STREAMS", KEY, b">"),
    ],
    "many pending": [
        *added(1, 1000, b"a", b"1"),
        *commands("XGROUP CREATE s g 0"),
        *[
            command(f"XREADGROUP GROUP g c{number % 7} COUNT 10 STREAMS s >")
            for number in range(90)
        ],
    ],
}


def pictures(key: bytes = KEY) -> list[Command]:
    """Return commands that show everything a client can see of a stream."""
    return [
        (b"TYPE", key),
        (b"XINFO", b"STREAM", key),
        (b"XINFO", b"STREAM", key, b"FULL", b"COUNT", b"0"),
        (b"XRANGE", key, b"-", b"+"),
        (b"XREVRANGE", key, b"+", b"-", b"COUNT", b"3"),
    ]
