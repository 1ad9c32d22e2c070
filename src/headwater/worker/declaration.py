"""A consumer as a program declares it. Everything that can be wrong with it is said here, at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Required, TypedDict, get_type_hints

from headwater.errors import DeclarationError
from headwater.groups.poison import MAX_CRASHES
from headwater.messages import RESERVED_PREFIX, dead_letter_stream
from headwater.worker.durations import milliseconds
from headwater.worker.handlers import Call, bind
from headwater.worker.retry import Backoff
from headwater.worker.starting import group_start
from headwater.worker.stream import Stream

DEFAULT_RETRY = Backoff("1s", factor=2, ceiling="5m", jitter=0.2)


class ConsumerOptions(TypedDict, total=False):
    """The options of ``@app.consumer`` besides its stream; only ``group`` is required."""

    group: Required[str]
    """The consumer group. Each group gets every entry of the stream."""
    claim_after: str | timedelta
    """An entry whose owner has been silent so long goes to another worker; 30 s."""
    lease: str | timedelta
    """Everything owned is renewed every third of it; a third of ``claim_after``."""
    concurrency: int
    """Entries handled at a time by one process; 16. A function that is not ``async`` runs in a
    thread."""
    prefetch: int
    """Entries that one process owns at a time; four times ``concurrency``."""
    retry: Backoff | None
    """How long an entry waits after its handler raised; None for no time at all."""
    max_deliveries: int
    """An entry that was delivered so often is a dead letter; 5. A delivery that ended because its
    process died does not count."""
    max_crashes: int
    """An entry that killed so many processes in which it ran alone is a dead letter; 2."""
    timeout: str | timedelta | None
    """A handler that runs longer is cancelled, as if it had raised TimeoutError."""
    into: Stream[Any] | None
    """What the function returns (a message, a list of them, or None) is published there in one step
    with the acknowledgement."""
    dead: str | None
    """The dead-letter stream; ``{stream}.dead``."""
    start: str | datetime
    """Where the group begins if it does not exist yet: ``"beginning"``; ``"new"``, with what is added
    from then on; behind an entry's id; or with what was added at a time."""
    delete: bool
    """Delete an entry when this and every other group has acknowledged it; False."""


@dataclass(frozen=True)
class Consumer:
    """One ``@app.consumer``. Durations in milliseconds.

    ``prefetch`` is the most entries that one process owns at a time, running ones included.
    """

    handler: Callable[..., Any]
    call: Call
    is_async: bool
    name: str
    stream: Stream[Any]
    group: str
    claim_after_ms: int
    lease_ms: int
    concurrency: int
    prefetch: int
    retry: Backoff | None
    max_deliveries: int
    max_crashes: int
    timeout_ms: int | None
    into: Stream[Any] | None
    dead: str
    start: str
    """The id behind which a new group begins; ``$`` for the last one there is."""
    delete: bool


def declare(
    handler: Callable[..., Any],
    stream: Stream[Any],
    *,
    group: str,
    claim_after: str | timedelta = "30s",
    lease: str | timedelta | None = None,
    concurrency: int | None = None,
    prefetch: int | None = None,
    retry: Backoff | None = DEFAULT_RETRY,
    max_deliveries: int = 5,
    max_crashes: int = MAX_CRASHES,
    timeout: str | timedelta | None = None,
    into: Stream[Any] | None = None,
    dead: str | None = None,
    start: str | datetime = "beginning",
    delete: bool = False,
) -> Consumer:
    """The consumer that these options describe; `DeclarationError` for what contradicts itself."""
    _check_streams(stream, into, dead)
    _check_group(group)
    if retry is not None and not isinstance(retry, Backoff):
        raise DeclarationError(f"retry={retry!r} must be a Backoff, or None to retry at once")
    bound = bind(handler, stream.type, has_results=into is not None)
    claim_after_ms, lease_ms = _lease(claim_after, lease)
    _check_number("max_deliveries", max_deliveries)
    _check_number("max_crashes", max_crashes)
    concurrency, prefetch = _bounds(concurrency, prefetch)
    if timeout is not None and not bound.is_async:
        raise DeclarationError(
            f"timeout={timeout!r}: handler {bound.name} is not `async def`, so it runs in a thread, "
            "and a thread cannot be stopped. Make it `async def`, or bound what it calls."
        )
    return Consumer(
        handler=handler,
        call=bound.call,
        is_async=bound.is_async,
        name=bound.name,
        stream=stream,
        group=group,
        claim_after_ms=claim_after_ms,
        lease_ms=lease_ms,
        concurrency=concurrency,
        prefetch=prefetch,
        retry=retry,
        max_deliveries=max_deliveries,
        max_crashes=max_crashes,
        timeout_ms=None if timeout is None else milliseconds(timeout, what="timeout"),
        into=into,
        dead=dead or dead_letter_stream(stream.name),
        start=group_start(start),
        delete=delete,
    )


def _lease(claim_after: str | timedelta, lease: str | timedelta | None) -> tuple[int, int]:
    """``claim_after`` and ``lease`` in milliseconds."""
    claim_after_ms = milliseconds(claim_after, what="claim_after", least_ms=100)
    lease_ms = max(1, claim_after_ms // 3)
    if lease is not None:
        lease_ms = milliseconds(lease, what="lease", least_ms=30)
    if lease_ms >= claim_after_ms:
        raise DeclarationError(
            f"lease={lease!r} must be shorter than claim_after={claim_after!r}: others claim what "
            "was not renewed for that long"
        )
    return claim_after_ms, lease_ms


def _check_group(group: Any) -> None:
    if not isinstance(group, str) or not group:
        raise DeclarationError(f"group={group!r} must be the name of the consumer group")
    if group.startswith(RESERVED_PREFIX):
        raise DeclarationError(
            f"group={group!r}: names that begin with {RESERVED_PREFIX!r} are Headwater's own; use "
            "another name"
        )


def _check_streams(stream: Any, into: Any, dead: Any) -> None:
    if not isinstance(stream, Stream):
        raise DeclarationError(f"{stream!r} is no Stream: Stream('orders', Order)")
    if into is not None and not isinstance(into, Stream):
        raise DeclarationError(f"into={into!r} is no Stream: Stream('invoices', Invoice)")
    if dead is not None and (not isinstance(dead, str) or not dead):
        raise DeclarationError(
            f"dead={dead!r} must be the name of the dead-letter stream, as in 'graveyard'; leave it "
            f"out for {dead_letter_stream(stream.name)!r}"
        )
    for option, name in (("into", None if into is None else into.name), ("dead", dead)):
        if name == stream.name:
            raise DeclarationError(
                f"{option}={name!r} is the stream that the consumer reads: it would handle its own "
                f"{'results' if option == 'into' else 'dead letters'} again and again. Name another"
            )


def _bounds(concurrency: int | None, prefetch: int | None) -> tuple[int, int]:
    for name, given in (("concurrency", concurrency), ("prefetch", prefetch)):
        if given is not None:
            _check_number(name, given)
    if concurrency is None:
        concurrency = min(16, prefetch or 16)
    if prefetch is None:
        prefetch = 4 * concurrency
    if prefetch < concurrency:
        raise DeclarationError(
            f"prefetch={prefetch} is less than concurrency={concurrency}: it counts all entries "
            "that a process owns, running ones included"
        )
    return concurrency, prefetch


def _check_number(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise DeclarationError(f"{name}={value!r} must be a whole number from 1 on")


def known(options: Mapping[str, object], declared: type) -> None:
    """Refuse what is not among the ``declared`` options, a TypedDict, or lacks a required one."""
    allowed: dict[str, object] = get_type_hints(declared)
    unknown = ", ".join(repr(name) for name in sorted(options.keys() - allowed.keys()))
    if unknown:
        raise DeclarationError(f"unknown option {unknown}: a consumer has {', '.join(allowed)}")
    missing = sorted(declared.__required_keys__ - options.keys())  # type: ignore[attr-defined]
    if missing:
        raise DeclarationError(f"a consumer needs {', '.join(f'{name}=' for name in missing)}")
