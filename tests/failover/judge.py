"""The verdict: pure functions over the clients' logs, the final content, and the times of the faults.

Content is what the primary has at the end. An answered write is lost if its number is not in it. Whether a loss breaks a
promise depends on the fault, so each is assigned to a `Window`: the time from the end of the repair of one fault to
that of the next.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from tests.failover.logs import Event

STUCK_SECONDS: Final = 30.0
"""How long a producer may be without an answer after the last fault."""

Entries = Sequence[tuple[str, Mapping[str, str]]]
"""Entries of a stream: id and fields."""

State = Mapping[str, Any]
"""What a member has: a name such as ``XRANGE raw``, and the reply without times."""

VOLATILE: Final = frozenset({"seen-time", "active-time", "idle", "inactive"})
"""Fields of XINFO that members do not share: times at which a consumer was seen."""
LAYOUT: Final = frozenset({"radix-tree-keys", "radix-tree-nodes", "length-bytes"})
"""Fields of XINFO about memory."""

NUMBER: Final = "n"
"""The field with a message's number."""


class Window(NamedTuple):
    """A fault, and the times at which it began and was repaired."""

    fault: str
    began: float
    repaired: float


class Finding(NamedTuple):
    """A violation, when it happened, and the fault to which it is assigned."""

    text: str
    at: float
    fault: int
    """Index of the window; that of the last one if it happened later."""


def window_at(windows: Sequence[Window], at: float) -> int:
    """The index of the window in which something happened."""
    for index, window in enumerate(windows):
        if at <= window.repaired:
            return index
    return len(windows) - 1


def numbers(entries: Entries) -> Counter[str]:
    """How often each message number occurs."""
    return Counter(fields[NUMBER] for _id, fields in entries if NUMBER in fields)


# --- what was lost --------------------------------------------------------------------------------


def lost(
    events: Iterable[Event], content: Mapping[str, Entries], windows: Sequence[Window]
) -> list[Finding]:
    """Answered writes that the content does not have."""
    has = {stream: numbers(entries) for stream, entries in content.items()}
    return [
        Finding(f"{one.stream} lost {one.what} ({one.id})", one.at, window_at(windows, one.at))
        for one in events
        if one.did == "answered" and one.what not in has.get(one.stream, Counter())
    ]


def gaps(
    events: Iterable[Event], content: Mapping[str, Entries], windows: Sequence[Window]
) -> list[Finding]:
    """Lost writes before a surviving one that the same producer sent later, both answered before the fault began. A failover
    may lose the end of what was answered, but not something in the middle."""
    has = {stream: numbers(entries) for stream, entries in content.items()}
    answered: dict[tuple[str, int], list[Event]] = defaultdict(list)
    for one in events:
        if one.did == "answered":
            index = window_at(windows, one.at)
            if index >= 0 and one.at < windows[index].began:
                answered[one.who, index].append(one)
    found = []
    for (_who, index), some in answered.items():
        some.sort(key=lambda event: event.at)
        kept = [one.what in has.get(one.stream, Counter()) for one in some]
        last = max((number for number, yes in enumerate(kept) if yes), default=-1)
        found += [
            Finding(f"{one.stream} lost {one.what}, but not {some[last].what}", one.at, index)
            for one, yes in zip(some[:last], kept, strict=False)
            if not yes
        ]
    return found


# --- what happened twice --------------------------------------------------------------------------


def repeated(
    events: Iterable[Event], content: Mapping[str, Entries], windows: Sequence[Window]
) -> list[Finding]:
    """Messages that are in the content more than once, though each was sent once or with a unique name."""
    tried = {one.what: one.at for one in events if one.did == "tried"}
    found = []
    for stream, entries in sorted(content.items()):
        for what, count in numbers(entries).items():
            if count > 1 and what in tried:
                at = tried[what]
                found.append(
                    Finding(f"{stream} has {what} {count} times", at, window_at(windows, at))
                )
    return found


def redelivered(events: Sequence[Event], windows: Sequence[Window]) -> list[Finding]:
    """Deliveries that were requested after the acknowledgement of the entry was answered."""
    acked: dict[tuple[str, str], float] = {}
    for one in events:
        if one.did == "acked":
            key = one.stream, one.id
            acked[key] = min(one.at, acked.get(key, one.at))
    found = []
    for one in events:
        at = acked.get((one.stream, one.id))
        if one.did == "delivered" and at is not None and one.asked > at:
            text = (
                f"{one.stream} delivered {one.id} {one.asked - at:.3f} s after it was acknowledged"
            )
            found.append(Finding(text, at, window_at(windows, at)))
    return found


def results_twice(orders: Entries, results: Entries) -> list[str]:
    """Messages with more results than entries."""
    sent = numbers(orders)
    return [
        f"{what} has {count} results"
        for what, count in numbers(results).items()
        if count > max(1, sent[what])
    ]


# --- what is missing or stuck ---------------------------------------------------------------------


def results_missing(orders: Entries, results: Entries) -> list[str]:
    """Messages that are settled without a result. Only meaningful if nothing is pending."""
    done = numbers(results)
    return [f"{what} has no result" for what in numbers(orders) if what not in done]


def never_delivered(events: Iterable[Event], stream: str, entries: Entries) -> list[str]:
    """Entries that no reader got. Only meaningful if the group has read everything and nothing is pending."""
    seen = {one.id for one in events if one.did == "delivered" and one.stream == stream}
    return [f"{stream} never delivered {entry}" for entry, _fields in entries if entry not in seen]


def stuck(events: Iterable[Event], since: float, until: float) -> list[str]:
    """Producers without an answered write in the `STUCK_SECONDS` after ``since``, if the log is that long. ``until`` is the
    time at which the producers were told to end."""
    producers: set[str] = set()
    answered: dict[str, float] = {}
    for one in events:
        if one.did == "tried":
            producers.add(one.who)
        if one.did == "answered" and one.at > since:
            answered[one.who] = min(one.at, answered.get(one.who, one.at))
    end = min(since + STUCK_SECONDS, until)
    return [
        f"{who} has no answered write in the {end - since:.1f} s after the last fault"
        for who in sorted(producers)
        if answered.get(who, end + 1) > end
    ]


# --- times ----------------------------------------------------------------------------------------


def first_answer(events: Iterable[Event], began: float) -> float | None:
    """Seconds from ``began`` until the first answer to a write that was sent after it; None if there is none."""
    tried = {
        (one.who, one.what): one.at for one in events if one.did == "tried" and one.at >= began
    }
    answers = [one.at for one in events if one.did == "answered" and (one.who, one.what) in tried]
    return min(answers) - began if answers else None


def longest_silence(events: Iterable[Event], began: float, until: float) -> float:
    """The longest time without any answered write between ``began`` and ``until``."""
    times = sorted(one.at for one in events if one.did == "answered" and began <= one.at <= until)
    marks = [began, *times, until]
    return max(after - before for before, after in pairwise(marks))


# --- members --------------------------------------------------------------------------------------


def comparable(reply: Any) -> Any:
    """A reply of XINFO or XPENDING without times at which consumers were seen, and without the layout of memory. A flat
    list of names and values becomes a dictionary."""
    if isinstance(reply, bytes):
        return reply.decode("utf-8", "surrogateescape")
    if not isinstance(reply, list):
        return reply
    names = reply[::2]
    if (
        reply
        and len(reply) % 2 == 0
        and all(isinstance(one, bytes) and one[:1].isalpha() for one in names)
    ):
        pairs = zip((one.decode() for one in names), reply[1::2], strict=True)
        return {k: comparable(v) for k, v in pairs if k not in VOLATILE and k not in LAYOUT}
    return [comparable(one) for one in reply]


def pending(rows: Iterable[Sequence[Any]]) -> list[tuple[str, str, int]]:
    """Rows of XPENDING without idle times: id, consumer and delivery count."""
    return [(comparable(row[0]), comparable(row[1]), row[3]) for row in rows]


def differences(states: Mapping[str, State]) -> list[str]:
    """What members have that the first one does not have, or the other way round."""
    if not states:
        return []
    (first, expected), *others = states.items()
    return [
        f"{member} differs from {first} in {what}: {_difference(expected.get(what), state.get(what))}"
        for member, state in others
        for what in sorted(expected.keys() | state.keys())
        if expected.get(what) != state.get(what)
    ]


def _difference(one: Any, other: Any) -> str:
    """Where two replies differ first."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            if one.get(key) != other.get(key):
                return f"{key}: {_difference(one.get(key), other.get(key))}"
    if isinstance(one, list) and isinstance(other, list):
        for number, (here, there) in enumerate(zip(one, other, strict=False)):
            if here != there:
                return f"[{number}] {_difference(here, there)}"
        return f"{len(one)} and {len(other)} items"
    return f"{one!r:.200} and {other!r:.200}"
