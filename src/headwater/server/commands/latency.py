"""LATENCY: the delays of the server by event, and the durations of commands.

Delays of at least ``latency-monitor-threshold`` milliseconds are recorded (0 records none). Durations of commands
are recorded with ``latency-tracking yes``.
"""

from __future__ import annotations

from headwater.commands.call import Call, shown
from headwater.errors import CommandError
from headwater.server.services.observability.latency import (
    COLLECTION,
    COMMAND,
    EXPIRE_CYCLE,
    FAST_COMMAND,
    FSYNC_ALWAYS,
    WRITE,
    EventSeries,
)
from headwater.server.services.services import Services
from headwater.server.session.session import Session

_ROWS = 4
_WIDTH = 80
_SHADES = "_-`"

_ADVICE = {
    COMMAND: "Look at SLOWLOG GET: a large COUNT, KEYS, or a command over a long pending list delays "
    "all other clients. Request less at a time.",
    FAST_COMMAND: "A command that should be fast was not: the machine was busy, or paused.",
    FSYNC_ALWAYS: "The disk takes long to make writes durable. With appendfsync everysec commands do "
    "not wait for it, and a power failure costs at most a second.",
    WRITE: "The disk takes long to accept writes: something else keeps it busy.",
    COLLECTION: "Python's cyclic collector ran. MEMORY PURGE and idle times cause full collections, "
    "which INFO stats counts (gc_full_collections).",
    EXPIRE_CYCLE: "Many keys, or large ones, expired at the same moment. Spread their expiry times.",
}


def latency_latest(call: Call, session: Session, services: Services) -> None:
    """LATENCY LATEST: each event with the time and length of its latest delay, and its longest delay."""
    events = services.observer.latency.events
    call.reply.value(
        [(name, *series.samples[-1], series.max_ms) for name, series in events.items()]
    )


def latency_history(call: Call, session: Session, services: Services) -> None:
    """LATENCY HISTORY event: (Unix seconds, ms) of each recorded delay."""
    series = services.observer.latency.events.get(shown(call.arguments.bytes(2)))
    call.reply.value(list(series.samples) if series is not None else [])


def latency_reset(call: Call, session: Session, services: Services) -> None:
    """LATENCY RESET [event …]: forget the delays of these events (or all); the number of events that had any."""
    names = [shown(name) for name in call.arguments.values(2)]
    call.reply.integer(services.observer.latency.reset(names))


def latency_graph(call: Call, session: Session, services: Services) -> None:
    """LATENCY GRAPH event: a drawing of its delays, oldest first, with the age of each below it."""
    typed = shown(call.arguments.bytes(2))
    series = services.observer.latency.events.get(typed)
    if series is None:
        raise CommandError(f"ERR No samples available for event '{typed}'")
    text = draw(typed, series, services.times.wall_now() // 1000)
    call.reply.verbatim(text.encode("utf-8", "surrogateescape"))


def latency_doctor(call: Call, session: Session, services: Services) -> None:
    """LATENCY DOCTOR: the recorded delays and advice, as text."""
    monitor = services.observer.latency
    if not monitor.threshold_ms and not monitor.events:
        text = (
            "Nothing is recorded: latency-monitor-threshold is 0. CONFIG SET "
            "latency-monitor-threshold 100 records every delay of 100 ms or more.\n"
        )
    elif not monitor.events:
        text = f"No delay of {monitor.threshold_ms} ms or more was recorded.\n"
    else:
        lines = [
            f"{number}. {name}: {_statistics(series)}"
            for number, (name, series) in enumerate(monitor.events.items(), 1)
        ]
        advice = [f"- {_ADVICE[name]}" for name in monitor.events if name in _ADVICE]
        text = "\n".join(["Recorded delays:", "", *lines, "", *advice]) + "\n"
    call.reply.verbatim(text.encode())


def latency_histogram(call: Call, session: Session, services: Services) -> None:
    """LATENCY HISTOGRAM [command …]: the numbers of calls that took at most 1, 2, 4 … microseconds.

    A container means all of its subcommands. Commands that have not run are left out.
    """
    wanted = [name.upper() for name in call.arguments.values(2)]
    call.reply.value(
        {
            name.lower(): {
                "calls": statistics.histogram.count,
                "histogram_usec": dict(statistics.histogram.powers_of_two()),
            }
            for name, statistics in services.observer.commands.items()
            if statistics.histogram is not None
            and (not wanted or name in wanted or name.partition(b"|")[0] in wanted)
        }
    )


def _statistics(series: EventSeries) -> str:
    """Return number, average and maximum of the recorded delays, in words."""
    delays = [ms for _, ms in series.samples]
    first, last = series.samples[0][0], series.samples[-1][0]
    average = sum(delays) / len(delays)
    return (
        f"{len(delays)} within {last - first + 1} s, {average:.0f} ms on average, "
        f"{max(delays)} ms at most; all-time maximum {series.max_ms} ms."
    )


def draw(name: str, series: EventSeries, now: int) -> str:
    """Draw the delays of an event as columns of characters, with the age of each written downwards.

    >>> series = EventSeries()
    >>> for time, ms in ((100, 10), (130, 40)):
    ...     series.add(time, ms)
    >>> print(draw("command", series, 160).partition("-\\n")[2].replace(" ", "."))
    .`
    ..
    ..
    _.
    <BLANKLINE>
    13
    m0
    .s
    <BLANKLINE>
    """
    samples = list(series.samples)
    delays = [ms for _, ms in samples]
    low, high = min(delays), max(delays)
    ages = [_age(now - time) for time, _ in samples]
    lines = [
        f"{name} - high {high} ms, low {low} ms (all time high {series.max_ms} ms)",
        "-" * _WIDTH,
    ]
    for start in range(0, len(samples), _WIDTH):
        part = slice(start, start + _WIDTH)
        lines += [*_columns(delays[part], low, high), "", *_downwards(ages[part])]
    return "\n".join(lines) + "\n"


def _columns(delays: list[int], low: int, high: int) -> list[str]:
    """Return the rows of a drawing, highest first."""
    steps = _ROWS * len(_SHADES)
    span = max(1, high - low)
    heights = [(ms - low) * (steps - 1) // span for ms in delays]
    return [
        "".join(
            _SHADES[height % len(_SHADES)] if height // len(_SHADES) == row else " "
            for height in heights
        )
        for row in reversed(range(_ROWS))
    ]


def _downwards(words: list[str]) -> list[str]:
    length = max(map(len, words))
    return ["".join(column) for column in zip(*(word.ljust(length) for word in words), strict=True)]


def _age(seconds: int) -> str:
    """Return ``30s``, ``5m``, ``2h`` or ``3d``."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{max(0, seconds)}s"
