"""Which commands may run twice, and how long each may block."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from headwater.client.repeatable import REPEATABLE, command_name, is_repeatable, wait_seconds
from headwater.commands.table import COMMANDS


@pytest.mark.parametrize(
    "command",
    [
        "XLEN s",
        "XRANGE s - +",
        "XPENDING s g",
        "XREAD BLOCK 0 STREAMS s $",
        "XINFO STREAM s",
        "xinfo groups s",
        "XACK s g 1-1",
        "XADD s IDMP producer 7 * a 1",
        "XADD s NOMKSTREAM MAXLEN ~ 100 LIMIT 10 IDMPAUTO producer * a 1",
        "XADD s KEEPREF MINID = 5-0 IDMP producer 7 * a 1",
        "GET k",
        "PING",
        "HELLO 3",
        "COMMAND",
        "COMMAND DOCS xadd",
        "CLIENT SETINFO LIB-NAME redis-py",
        "CONFIG GET *",
        "SCRIPT LOAD x",
    ],
)
def test_a_repeatable_command(command: str) -> None:
    assert is_repeatable(command.split())
    assert is_repeatable([word.encode() for word in command.lower().split()])


@pytest.mark.parametrize(
    "command",
    [
        "XADD s * a 1",
        "XADD s 1-1 IDMP 1",
        "XADD s MAXLEN 10 * IDMP 1",
        "XADD s MAXLEN",
        "XADD",
        "XREADGROUP GROUP g c STREAMS s >",
        "XCLAIM s g c 0 1-1",
        "XAUTOCLAIM s g c 0 0",
        "XNACK s g FAIL IDS 1 1-1",
        "XSETTLE s g c ACK IDS 1 1-1",
        "XGROUP CREATE s g 0",
        "XINFO",
        "SET k v",
        "INCR k",
        "EXEC",
        "EVALSHA 0 0",
        "CONFIG SET appendfsync no",
        "CLIENT KILL x",
        "SCRIPT FLUSH",
        "WAIT 1 0",
        "NOSUCH x",
        "",
    ],
)
def test_a_command_that_is_not_repeatable(command: str) -> None:
    assert not is_repeatable(command.split() or [""])


def test_a_name_of_several_words_is_read_as_one_command() -> None:
    assert command_name(("XINFO STREAM", "s")) == "XINFO"
    assert is_repeatable(("XINFO STREAM", "s"))
    assert not is_repeatable(("XGROUP CREATE", "s", "g", "0"))
    assert not is_repeatable((b"CONFIG SET", "appendfsync", "no"))
    assert wait_seconds(("XREAD BLOCK 500 STREAMS s $",)) == 0.5


def test_only_listed_commands_that_write_are_repeated() -> None:
    writers = {
        row.name.upper().replace("|", " ")
        for container in COMMANDS.values()
        for row in (container, *container.subcommands.values())
        if row.writes
    }
    assert writers & REPEATABLE == {"XACK"}


@pytest.mark.parametrize(
    ("command", "seconds"),
    [
        ("XLEN s", 0),
        ("XREAD STREAMS s $", 0),
        ("XREAD COUNT 5 BLOCK 2500 STREAMS s $", 2.5),
        ("xread block 0 streams s $", inf),
        ("XREAD STREAMS BLOCK 0", 0),
        ("XREADGROUP GROUP g c STREAMS s >", 0),
        ("XREADGROUP GROUP BLOCK 7 BLOCK 1000 STREAMS s >", 1),
        ("XREADGROUP GROUP STREAMS c BLOCK 1000 STREAMS s >", 1),
        ("XREADGROUP GROUP g c CLAIM 60000 NOACK BLOCK 10 STREAMS s >", 0.01),
        ("XREAD BLOCK", 0),
        ("XREAD BLOCK soon STREAMS s $", 0),
        ("XREAD BLOCK -1 STREAMS s $", 0),
        ("XREAD BLOCK nan STREAMS s $", 0),
        ("BLPOP a b 1.5", 1.5),
        ("BLPOP a 0", inf),
        ("BLMPOP 3 1 a LEFT", 3),
        ("BZPOPMIN a 2", 2),
        ("WAIT 1 1500", 1.5),
        ("WAITAOF 1 0 0", inf),
        ("WAIT", 0),
        ("MONITOR", inf),
    ],
)
def test_how_long_a_command_may_block(command: str, seconds: float) -> None:
    assert wait_seconds(command.split()) == seconds
    assert wait_seconds([word.encode() for word in command.split()]) == seconds


def test_numbers_need_not_be_text() -> None:
    arguments: list[Any] = ["XREAD", "COUNT", 10, b"BLOCK", 250, b"STREAMS", "s", "$"]
    assert wait_seconds(arguments) == 0.25


# --- an attempt -------------------------------------------------------------------------------------
