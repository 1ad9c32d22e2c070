"""The reconciliation detects every lost, duplicated or wrongly classified flight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from headwater.demo.corrupt import REASONS, Corruption
from headwater.demo.data import Key
from headwater.demo.evidence import Evidence, OwnedEntries, SettledEntry
from headwater.demo.producer import Published
from headwater.demo.reconcile import lines, text
from headwater.demo.tables import Tables
from headwater.messages.dead import DeadLetter


def letter(number: int, error: str) -> DeadLetter:
    """The dead letter of entry ``number-0``."""
    place = ("flights", "ops", f"{number}-0", "c")
    return DeadLetter(f"9-{number}", *place, 1, error, "", "", [])


def sound() -> Evidence:
    """Ten flights, four of them corrupted, each in its own way; the killed worker owned 1-0 and 2-0, the
    stopped one handed back 3-0."""
    keys = {Key("UA", number, 0, "EWR") for number in range(6)}
    settled = {f"{number}-0": SettledEntry("c", 1) for number in range(10)}
    settled |= {"1-0": SettledEntry("b", 2), "2-0": SettledEntry("c", 2)}
    return Evidence(
        published=Published(10, Counter(Corruption), keys),
        in_stream=10,
        enriched=Counter(keys),
        dead=[
            letter(6 + number, f"Dead: {REASONS[kind]}") for number, kind in enumerate(Corruption)
        ],
        settled=settled,
        pending=0,
        unread=0,
        killed=OwnedEntries("a", {"1-0": 1, "2-0": 1}),
        stopped=OwnedEntries("b", {"3-0": 0}),
        tables=Tables(Counter(keys), 6, 6),
    )


def broken(evidence: Evidence) -> list[str]:
    """Return the promises that the evidence breaks."""
    return [line.promise for line in lines(evidence) if not line.holds]


LOST = Key("UA", 0, 0, "EWR")
STRANGER = Key("ZZ", 1, 0, "EWR")

IN_STREAM = "each valid flight exactly once in flights.enriched"
IN_TABLE = "each valid flight exactly once in the Parquet table"
CLAIMED = "owned by the killed worker = claimed by others"
HANDED_BACK = "handed back at the stop = redelivered"

Change = Callable[[Evidence], Evidence]


def enriched(change: dict[Key, int]) -> Change:
    return lambda e: e._replace(enriched=Counter({**e.enriched, **change}))


def tabled(change: dict[Key, int]) -> Change:
    return lambda e: e._replace(
        tables=e.tables._replace(flights=Counter({**e.tables.flights, **change}))
    )


def settled(entry_id: str, by: SettledEntry) -> Change:
    return lambda e: e._replace(settled={**e.settled, entry_id: by})


def test_sound_evidence_breaks_no_promise() -> None:
    assert broken(sound()) == []


@pytest.mark.parametrize(
    ("change", "promise"),
    [
        (lambda e: e._replace(in_stream=9), "flights published = entries in the stream"),
        (enriched({LOST: 2}), "published = enriched + dead"),
        (enriched({LOST: 2}), IN_STREAM),
        (lambda e: e._replace(enriched=e.enriched - Counter([LOST])), IN_STREAM),
        (
            lambda e: e._replace(enriched=e.enriched - Counter([LOST]) + Counter([STRANGER])),
            IN_STREAM,
        ),
        (tabled({LOST: 2}), IN_TABLE),
        (tabled({STRANGER: 1}), IN_TABLE),
        (lambda e: e._replace(pending=1), "entries still pending"),
        (lambda e: e._replace(unread=-1), "entries never read"),
        (settled("1-0", SettledEntry("a", 1)), CLAIMED),
        (settled("1-0", SettledEntry("b", 1)), CLAIMED),
        (settled("3-0", SettledEntry("b", 1)), HANDED_BACK),
        (lambda e: e._replace(stopped=OwnedEntries("b", {"3-0": 1})), HANDED_BACK),
        (lambda e: e._replace(stopped=OwnedEntries("b", {})), HANDED_BACK),
        (lambda e: e._replace(dead=e.dead[1:]), f"dead letters: {Corruption.BROKEN_JSON}"),
        (lambda e: e._replace(dead=[*e.dead, letter(3, "ValueError: no")]), "dead letters: other"),
        (
            lambda e: e._replace(tables=e.tables._replace(hourly=5)),
            "flights in the hourly table",
        ),
        (
            lambda e: e._replace(tables=e.tables._replace(carriers=7)),
            "flights in the carriers table",
        ),
    ],
)
def test_a_broken_promise_is_named(change: Change, promise: str) -> None:
    assert promise in broken(change(sound()))


def test_the_table_of_lines_names_what_is_wrong() -> None:
    evidence = enriched({LOST: 2})(sound())
    rows = [row for row in text(lines(evidence)).splitlines() if row.startswith("NO")]
    assert len(rows) == 2
    assert rows[1].endswith("1 more than once")
