"""The written cases of keys and values by what they do besides replying."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.conformance import cases, differences, side_effects
from tests.conformance.cases import Case
from tests.peers import Peer

pytestmark = pytest.mark.peer

FILES = {"keys", "lists_and_sets", "renaming", "restoring", "strings", "values"}
ABOUT_KEYS = [
    case for case in cases.all_cases() if case.file in FILES and "redis-8.2" in case.servers
]


@pytest.mark.parametrize(
    "case", ABOUT_KEYS, ids=[f"{case.file}: {case.title}" for case in ABOUT_KEYS]
)
def test_events_and_changes_are_those_of_redis(
    case: Case, shared_peer: Callable[[str], Peer]
) -> None:
    # Given the same commands on both
    now_ms = time.time_ns() // 1_000_000
    history = case.history(now_ms)
    ours = side_effects.of_headwater(history, now_ms, letters=side_effects.KEYS)
    theirs = side_effects.of_peer(history, shared_peer("redis-8.2"), letters=side_effects.KEYS)
    # Then each has the same effects, but for those that differ in their replies already
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
