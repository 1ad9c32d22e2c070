"""A group's position and a stream's beginning are moved with a preview that is what happens."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.worker.core import Core

pytestmark = pytest.mark.slow

Run = Callable[..., str]


def fill(core: Core, count: int = 10) -> list[str]:
    """Entries with the ids 1-0, 2-0, …; the group has read six of them and settled two."""
    for n in range(1, count + 1):
        core.client.xadd("s", {"n": n}, id=f"{n}-0")
    read = core.read(6)
    core.settle(read[0])
    core.settle(read[1])
    return [f"{n}-0" for n in range(1, count + 1)]


@pytest.mark.parametrize(
    ("words", "after", "again", "skipped"),
    [
        (("--to", "3-0"), "3-0", 3, 0),
        (("--to", "0"), "0-0", 6, 0),
        (("--to", "$"), "10-0", 0, 4),
        (("--to", "8"), "8-0", 0, 2),
        (("--back", "2"), "4-0", 2, 0),
        (("--back", "100"), "0-0", 6, 0),
        (("--to", "1970-01-01T00:00:00.005Z"), f"4-{2**64 - 1}", 2, 0),
    ],
    ids=str,
)
def test_the_preview_of_a_position_is_what_is_delivered_then(
    core: Core, run_headwater: Run, words: tuple[str, ...], after: str, again: int, skipped: int
) -> None:
    fill(core)
    # When the position is previewed, then nothing changes
    (found,) = json.loads(
        run_headwater("groups", "reset", "s", "g", *words, "--dry-run", "-o", "json")
    )
    assert (found["before"], found["after"]) == ("6-0", after)
    assert (found["again"], found["skipped"], found["pending"]) == (again, skipped, 4)
    (group,) = core.client.xinfo_groups("s")
    assert group["last-delivered-id"] == b"6-0"
    # When it is set, then a reader gets what was said
    run_headwater("groups", "reset", "s", "g", *words, "--yes")
    reply: Any = core.client.xreadgroup("g", "new", {"s": ">"}, count=100)
    assert len(reply[0][1] if reply else []) == 4 + again - skipped


@pytest.mark.parametrize(
    ("words", "removed", "unread", "pending"),
    [
        (("--maxlen", "2"), 8, 2, 4),
        (("--maxlen", "0"), 10, 4, 4),
        (("--maxlen", "50"), 0, 0, 0),
        (("--minid", "5-0"), 4, 0, 2),
        (("--minid", "1970-01-01T00:00:00.009Z"), 8, 2, 4),
        (("--minid", "1960-01-01T00:00:00Z"), 0, 0, 0),
    ],
    ids=str,
)
def test_the_preview_of_a_trim_is_what_is_removed(
    core: Core, run_headwater: Run, words: tuple[str, ...], removed: int, unread: int, pending: int
) -> None:
    fill(core)
    (found,) = json.loads(run_headwater("streams", "trim", "s", *words, "--dry-run", "-o", "json"))
    assert core.client.xlen("s") == 10
    assert found["removed"] == removed
    for one in found["groups"]:
        assert one == {"group": "g", "unread": unread, "pending": pending}
    run_headwater("streams", "trim", "s", *words, "--yes")
    assert core.client.xlen("s") == 10 - removed


def test_long_ranges_are_counted(core: Core, run_headwater: Run) -> None:
    pipe = core.client.pipeline(transaction=False)
    for n in range(1, 12_001):
        pipe.xadd("s", {"n": n}, id=f"{n}-0")
    pipe.execute()
    core.client.xgroup_setid("s", "g", "12000-0")
    (found,) = json.loads(
        run_headwater("groups", "reset", "s", "g", "--back", "11500", "--dry-run", "-o", "json")
    )
    assert (found["after"], found["again"]) == ("500-0", 11_500)
    (found,) = json.loads(
        run_headwater("streams", "trim", "s", "--maxlen", "700", "--dry-run", "-o", "json")
    )
    assert (found["removed"], found["minid"]) == (11_300, "11301-0")


@pytest.mark.parametrize(("maxlen", "lost"), [(0, 2_500), (1, 2_499)])
def test_the_preview_of_a_trim_counts_all_pending_entries(
    core: Core, run_headwater: Run, maxlen: int, lost: int
) -> None:
    # Given more pending entries than one request returns
    pipe = core.client.pipeline(transaction=False)
    for n in range(1, 2_501):
        pipe.xadd("s", {"n": n}, id=f"{n}-0")
    pipe.execute()
    core.client.xreadgroup("g", "one", {"s": ">"})
    # When a trim is previewed, then it counts all that are lost
    trim = ("streams", "trim", "s", "--maxlen", str(maxlen), "--dry-run", "-o", "json")
    (found,) = json.loads(run_headwater(*trim))
    assert found["groups"] == [{"group": "g", "unread": 0, "pending": lost}]


def test_a_position_at_the_last_possible_id_can_be_previewed(
    core: Core, run_headwater: Run
) -> None:
    # Given a group whose position is the last possible id
    fill(core)
    last = f"{2**64 - 1}-{2**64 - 1}"
    run_headwater("groups", "reset", "s", "g", "--to", last, "--yes")
    # When it is moved there again, then nothing changes
    (found,) = json.loads(
        run_headwater("groups", "reset", "s", "g", "--to", last, "--dry-run", "-o", "json")
    )
    assert (found["again"], found["skipped"]) == (0, 0)
    # And there is no entry after it
    assert run_headwater("tail", "s", "--from", last) == ""


def test_a_question_is_asked_before_a_change(core: Core, run_headwater: Run) -> None:
    fill(core)
    assert "Set group g of s to 0-0?" in run_headwater(
        "groups", "reset", "s", "g", "--to", "0", status=1
    )
    assert "Remove 10 entries of s?" in run_headwater(
        "streams", "trim", "s", "--maxlen", "0", status=1
    )
    assert core.client.xlen("s") == 10
    for words, said, status in (
        (("groups", "reset", "s", "g"), "give one of --to and --back", 2),
        (("groups", "reset", "s", "g", "--to", "later"), "is not a time", 2),
        (("groups", "reset", "s", "x", "--to", "0"), "no group 'x'", 1),
        (("streams", "trim", "s"), "give one of --maxlen and --minid", 2),
        (("streams", "trim", "x", "--maxlen", "1"), "no stream 'x'", 1),
    ):
        assert said in run_headwater(*words, status=status)


def test_a_stream_without_groups_is_trimmed(core: Core, run_headwater: Run) -> None:
    for n in range(1, 6):
        core.client.xadd("alone", {"n": n}, id=f"{n}-0")
    words = ("streams", "trim", "alone", "--maxlen", "2")
    (found,) = json.loads(run_headwater(*words, "--dry-run", "-o", "json"))
    assert (found["removed"], found["minid"], found["groups"]) == (3, "4-0", [])
    run_headwater(*words, "--yes")
    assert core.client.xlen("alone") == 2
