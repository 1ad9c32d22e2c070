"""Judges the evidence, a line at a time: two counts that must be equal, or a promise is broken."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from headwater.demo.data import Key
from headwater.demo.evidence import Evidence, Held
from headwater.demo.spoil import Corruption, kind_of


class Line(NamedTuple):
    """One promise, with what should be and what is."""

    promise: str
    expected: int
    found: int
    note: str = ""

    @property
    def holds(self) -> bool:
        return self.expected == self.found and not self.note


def lines(evidence: Evidence) -> list[Line]:
    """Every line of the reconciliation, in the order of the story."""
    published = evidence.published
    enriched = evidence.enriched.total()
    return [
        Line("flights published = entries in the stream", published.flights, evidence.in_stream),
        Line(
            "published = enriched + dead",
            published.flights,
            enriched + len(evidence.dead),
        ),
        exactly_once("flights.enriched", published.unspoiled, evidence.enriched),
        exactly_once("the Parquet table", published.unspoiled, evidence.tables.flights),
        Line("flights in the hourly table", len(published.unspoiled), evidence.tables.hourly),
        Line("flights in the carriers table", len(published.unspoiled), evidence.tables.carriers),
        Line("entries still pending", 0, evidence.pending),
        Line("entries never read", 0, evidence.unread),
        delivered_again(
            "owned by the killed worker = claimed by others", evidence, evidence.killed
        ),
        delivered_again("handed back at the stop = redelivered", evidence, evidence.stopped),
        *dead_letters(evidence),
    ]


def exactly_once(place: str, wanted: set[Key], found: Counter[Key]) -> Line:
    """Each wanted key is there once, and nothing else is."""
    missing = len(wanted - found.keys())
    strangers = len(found.keys() - wanted)
    again = found.total() - len(found)
    wrong = {"missing": missing, "unexpected": strangers, "more than once": again}
    note = ", ".join(f"{count:,} {word}" for word, count in wrong.items() if count)
    return Line(f"each unspoiled flight exactly once in {place}", len(wanted), found.total(), note)


def delivered_again(promise: str, evidence: Evidence, held: Held) -> Line:
    """What a worker owned or gave back was delivered once more than it had been, to another one,
    which settled it."""
    again = 0
    for entry_id, deliveries in held.entries.items():
        end = evidence.settled.get(entry_id)
        if end is not None and end.consumer != held.consumer and end.deliveries > deliveries:
            again += 1
    note = "" if held.entries else "nothing to show it by"
    return Line(promise, len(held.entries), again, note)


def dead_letters(evidence: Evidence) -> list[Line]:
    """One line for each kind of fault, and one for reasons that are no kind."""
    found = Counter(kind_of(letter.error) for letter in evidence.dead)
    by_kind = [
        Line(f"dead letters: {kind}", evidence.published.spoiled[kind], found[kind.value])
        for kind in Corruption
    ]
    return [*by_kind, Line("dead letters: other", 0, found["other"])]


def text(judged: list[Line]) -> str:
    """The lines as a table of plain text."""
    wide = max(len(line.promise) for line in judged)
    rows = [f"{'':2} {'':{wide}} {'expected':>12} {'found':>12}"]
    for line in judged:
        mark = "ok" if line.holds else "NO"
        note = f"  {line.note}" if line.note else ""
        rows.append(f"{mark} {line.promise:{wide}} {line.expected:>12,} {line.found:>12,}{note}")
    return "\n".join(rows)
