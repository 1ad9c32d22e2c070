"""Compares the counts. Each line of the reconciliation has two counts that must be equal."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from headwater.demo.corrupt import Corruption, kind_of
from headwater.demo.data import Key
from headwater.demo.evidence import Evidence, OwnedEntries


class Line(NamedTuple):
    """One guarantee, with the expected and the actual count."""

    promise: str
    expected: int
    found: int
    note: str = ""

    @property
    def holds(self) -> bool:
        return self.expected == self.found and not self.note


def lines(evidence: Evidence) -> list[Line]:
    """Return all lines of the reconciliation, in the order of the demo's steps."""
    published = evidence.published
    enriched = evidence.enriched.total()
    return [
        Line("flights published = entries in the stream", published.flights, evidence.in_stream),
        Line(
            "published = enriched + dead",
            published.flights,
            enriched + len(evidence.dead),
        ),
        exactly_once("flights.enriched", published.valid, evidence.enriched),
        exactly_once("the Parquet table", published.valid, evidence.tables.flights),
        Line("flights in the hourly table", len(published.valid), evidence.tables.hourly),
        Line("flights in the carriers table", len(published.valid), evidence.tables.carriers),
        Line("entries still pending", 0, evidence.pending),
        Line("entries never read", 0, evidence.unread),
        delivered_again(
            "owned by the killed worker = claimed by others", evidence, evidence.killed
        ),
        delivered_again("handed back at the stop = redelivered", evidence, evidence.stopped),
        *dead_letters(evidence),
    ]


def exactly_once(place: str, wanted: set[Key], found: Counter[Key]) -> Line:
    """Return a line that holds if each wanted key was found once and no other key was found."""
    missing = len(wanted - found.keys())
    unexpected = len(found.keys() - wanted)
    again = found.total() - len(found)
    wrong = {"missing": missing, "unexpected": unexpected, "more than once": again}
    note = ", ".join(f"{count:,} {word}" for word, count in wrong.items() if count)
    return Line(f"each valid flight exactly once in {place}", len(wanted), found.total(), note)


def delivered_again(promise: str, evidence: Evidence, owned: OwnedEntries) -> Line:
    """Return a line that holds if each entry that a worker owned or handed back was delivered again to another
    worker, and that worker settled it."""
    again = 0
    for entry_id, deliveries in owned.entries.items():
        end = evidence.settled.get(entry_id)
        if end is not None and end.consumer != owned.consumer and end.deliveries > deliveries:
            again += 1
    note = "" if owned.entries else "no such entries"
    return Line(promise, len(owned.entries), again, note)


def dead_letters(evidence: Evidence) -> list[Line]:
    """Return one line for each kind of corruption, and one for all other reasons."""
    found = Counter(kind_of(letter.error) for letter in evidence.dead)
    by_kind = [
        Line(f"dead letters: {kind}", evidence.published.corrupted[kind], found[kind.value])
        for kind in Corruption
    ]
    return [*by_kind, Line("dead letters: other", 0, found["other"])]


def text(judged: list[Line]) -> str:
    """Return the lines as a plain-text table."""
    wide = max(len(line.promise) for line in judged)
    rows = [f"{'':2} {'':{wide}} {'expected':>12} {'found':>12}"]
    for line in judged:
        mark = "ok" if line.holds else "NO"
        note = f"  {line.note}" if line.note else ""
        rows.append(f"{mark} {line.promise:{wide}} {line.expected:>12,} {line.found:>12,}{note}")
    return "\n".join(rows)
