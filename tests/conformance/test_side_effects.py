"""Side effects of written cases and of random histories: keyspace events and counted changes."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.conformance import cases, differences, side_effects
from tests.conformance.cases import Case
from tests.conformance.histories import History
from tests.peers import Peer

pytestmark = pytest.mark.peer

ABOUT_STREAMS = {
    "ackdel",
    "claiming",
    "deleting",
    "delex",
    "groups",
    "lag",
    "nodes",
    "pending",
    "reading",
    "reading_as_group",
    "xadd",
}
ABOUT_KEYS = {"keys", "lists_and_sets", "renaming", "restoring", "strings", "values"}
LETTERS = dict.fromkeys(ABOUT_STREAMS, side_effects.STREAMS) | dict.fromkeys(
    ABOUT_KEYS, side_effects.KEYS
)
"""The event classes to compare, by file of cases."""

WRITTEN = [
    case for case in cases.all_cases() if case.file in LETTERS and "redis-8.2" in case.servers
]


@pytest.mark.parametrize("case", WRITTEN, ids=[f"{case.file}: {case.title}" for case in WRITTEN])
def test_events_and_changes_are_those_of_redis(
    case: Case, shared_peer: Callable[[str], Peer]
) -> None:
    # Given the same commands on both servers
    now_ms, letters = time.time_ns() // 1_000_000, LETTERS[case.file]
    history = case.history(now_ms)
    ours = side_effects.of_headwater(history, now_ms, letters=letters)
    theirs = side_effects.of_peer(history, shared_peer("redis-8.2"), letters=letters)
    # Then the effects are equal, except for lines with a known difference in their replies
    known = {
        at
        for at, line in enumerate(case.lines)
        if line.tag and "redis-8.2" in differences.LINES[line.tag].servers
    }
    wrong, at = [], 0
    for commands, we, they in zip(side_effects.together(history), ours, theirs, strict=True):
        here, at = range(at, at + len(commands)), at + len(commands)
        if we != they and known.isdisjoint(here):
            said = b" | ".join(b" ".join(words) for words in commands)
            wrong.append(f"{said.decode(errors='replace')}\n    we:   {we}\n    they: {they}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("seed", range(3))
def test_a_random_history_has_the_same_effects_as_on_redis(
    seed: int, shared_peer: Callable[[str], Peer]
) -> None:
    history = History(5000 + seed, "redis-8.2").commands(300)
    ours = side_effects.of_headwater(history, time.time_ns() // 1_000_000)
    theirs = side_effects.of_peer(history, shared_peer("redis-8.2"))
    for commands, we, they in zip(side_effects.together(history), ours, theirs, strict=True):
        assert we == they, commands


def test_events_are_those_of_valkey(shared_peer: Callable[[str], Peer]) -> None:
    """Valkey counts history reads as changes, so only the events are compared."""
    history = History(6000, "valkey-9.1").commands(500)
    ours = side_effects.of_headwater(history, time.time_ns() // 1_000_000)
    theirs = side_effects.of_peer(history, shared_peer("valkey-9.1"))
    for commands, we, they in zip(side_effects.together(history), ours, theirs, strict=True):
        assert we.events == they.events, commands


OURS = {
    "XSETTLE s g c ACK IDS 1 1-1": ((), 1),
    "XSETTLE s g c ACK IDS 1 9-9": ((), 0),
    "XSETTLE s g c ACKDEL IDS 2 1-1 1-2": (("s: xdel",), 2),
    "XSETTLE s g c FAIL IDS 1 1-1": ((), 1),
    "XSETTLE s g c FAIL DELAY 5 IDS 1 1-1": ((), 1),
    "XSETTLE s g c ACK IDS 1 1-1 TO t * FIELDS 1 a b TO s MAXLEN 1 * FIELDS 1 a b": (
        ("t: new", "t: xadd", "s: xadd", "s: xtrim"),
        3,
    ),
    "XRENEW s g c IDS 1 1-1": ((), 1),
    "XRETIRE s g c": ((), 0),
    "XRETIRE s g idle": (("s: xgroup-delconsumer",), 1),
    "XNACK s g FAIL IDS 2 1-1 1-2": ((), 2),
    "XREADGROUP GROUP g new CLAIM 0 STREAMS s >": (("s: xgroup-createconsumer",), 2),
    "XLAG s": ((), 0),
    "XDELAYED s g": ((), 0),
    "XSPLIT s - + 2": ((), 0),
    "XCOUNTERS s none": ((), 0),
}
"""Commands that only Headwater has: their effects are those of the commands that they combine."""


@pytest.mark.parametrize("line", OURS)
def test_own_commands_have_the_effects_of_the_commands_they_combine(line: str) -> None:
    before = """
        XADD s 1-1 a 1
        XADD s 1-2 a 1
        XGROUP CREATE s g 0
        XGROUP CREATECONSUMER s g idle
        XREADGROUP GROUP g c STREAMS s >
    """
    history = [
        tuple(word.encode() for word in said.split())
        for said in [*before.strip().splitlines(), line]
    ]
    *_, found = side_effects.of_headwater(history, 1_700_000_000_000)
    events, changes = OURS[line]
    assert found == side_effects.Effects(tuple(event.encode() for event in events), changes)
