"""The declaration of a consumer. All mistakes in the options are reported when the consumer is declared."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import (
    Any,
    Literal,
    NamedTuple,
    Required,
    TypedDict,
    Unpack,
    get_origin,
    get_type_hints,
)

from headwater.common.durations import milliseconds
from headwater.common.model import MIN_ID, StreamID, id_before
from headwater.errors import DeclarationError
from headwater.groups.reading.poison import MAX_CRASHES
from headwater.groups.settling.settling import How
from headwater.messages.keys import RESERVED_PREFIX, dead_letter_stream
from headwater.worker.declare.dependencies import Dependency, all_of
from headwater.worker.declare.handlers import Bound, Call, bind
from headwater.worker.declare.limit import ConsumerLimits, Limit, declared_limits
from headwater.worker.declare.retry import Backoff
from headwater.worker.declare.schedules import Schedule
from headwater.worker.declare.stream import Stream

DEFAULT_RETRY = Backoff("1s", factor=2, ceiling="5m", jitter=0.2)


Executor = Literal["thread", "process"]

EXECUTORS = ("thread", "process")

POOL_PROCESS = "headwater pool process"
"""The name of pool processes (`multiprocessing.current_process`)."""

MOST_PROCESSES = 1_000
"""The largest ``concurrency`` with ``executor="process"``."""


class StartOptions(TypedDict, total=False):
    """The options of a consumer that control the start of its entries."""

    expires: str | timedelta | None
    """Maximum time between the addition of an entry, or its due time (``after=``), and its first start. An entry
    that has not started by then has expired; see ``on_expired``. The default None means no limit."""
    on_expired: Literal["drop", "dead"]
    """Treatment of an entry that has expired, by ``expires`` here or in `Stream.send`: ``"drop"``, the default,
    acknowledges it without handling it; ``"dead"`` makes it a dead letter."""
    limit: Limit | Sequence[Limit] | None
    """Limit on the rate of starts or on the entries that run at once, in all workers: one `Limit`, or a list."""


class ConsumerOptions(StartOptions, total=False):
    """The options of ``@app.consumer``, besides its stream, including those of `StartOptions`. Only ``group`` is
    required.

    Guide: docs/guide/worker.md, the options of a consumer.
    """

    group: Required[str]
    """The consumer group. Each group gets every entry of the stream."""
    claim_after: str | timedelta
    """Maximum time for which an owner may be silent before another worker claims its entries; default 30 s, at
    least 100 ms. All workers of a group must declare the same value."""
    lease: str | timedelta
    """Time for which a renewal of owned entries is valid. A worker renews three times per lease. The default is a
    third of ``claim_after``; a lease must be shorter than ``claim_after``."""
    concurrency: int
    """Maximum number of entries that one process handles at a time; default 16, at most 100,000. With
    ``executor="process"``, the number of pool processes: by default one for each processor, at most 16."""
    executor: Executor
    """Place where a function that is not ``async`` runs: ``"thread"``, the default, or ``"process"``, in a pool of
    processes. Each process handles one entry or batch at a time, and its death affects only that one."""
    recycle: int | None
    """Number of entries (or batches) after which a pool process is replaced, for functions that leak memory. The
    default None means never."""
    prefetch: int
    """Maximum number of entries that one process owns at a time, running ones included. By default a process reads
    ahead what its handlers finish in about 50 ms, at least one entry, and owns up to 4 times ``concurrency``."""
    retry: Backoff | None
    """Retry policy: the wait of an entry after its handler raised; default ``Backoff("1s", factor=2,
    ceiling="5m", jitter=0.2)``. With None the entry is delivered again immediately."""
    max_deliveries: int
    """Number of failed deliveries after which an entry becomes a dead letter; default 5. A delivery that ended
    because its process died, with other messages in flight, does not count."""
    max_crashes: int
    """Number of deaths of processes in which an entry ran alone, after which it becomes a dead letter;
    default 2."""
    timeout: str | timedelta | None
    """Maximum time for which the handler may run; default None, no limit. After this time the delivery fails with
    ``TimeoutError``. An ``async`` function is cancelled, and a pool process is ended. For a function in a thread
    the worker process is replaced, which needs ``headwater work``."""
    into: Stream[Any] | None
    """The stream to which results are published, in one step with the acknowledgement: the function
    returns a message, a list of messages, or None for no message."""
    dead: str | None
    """The name of the dead-letter stream. The default for the stream ``orders`` is ``{orders}.dead``."""
    order_by: Callable[[Any], Hashable] | None
    """A function that returns the key of a message. Messages of one key are handled one at a time, in the
    order of their ids. One process at a time reads the stream for the group; another process takes over when all
    slots of the reading process are busy with long messages."""
    start: str | datetime
    """Position at which the group begins if it does not exist yet: ``"beginning"``, the default; ``"new"`` for
    entries that are added later; an id for the entries after it; or a datetime with a time zone for entries added
    since that time. Source: the command page of XGROUP CREATE."""
    delete: bool
    """True to delete an entry once this and every other group has acknowledged it; default False."""


class BatchOptions(ConsumerOptions, total=False):
    """The options of ``@app.batch``: those of `ConsumerOptions` and these.

    ``concurrency`` is a number of batches, default 1. ``prefetch`` is a number of entries; by default it leaves
    room for one batch in addition to those that are being handled. With ``size=1``, the defaults of both are those
    of `ConsumerOptions`. ``order_by`` is refused.
    """

    size: int
    """Maximum number of entries of a batch; default 500, at most 10,000."""
    linger: str | timedelta
    """Maximum time for which the first entry of a batch waits for others; default 50 ms, shorter than
    ``claim_after``."""


class BatchSize(NamedTuple):
    """The condition for a complete batch: it has ``size`` entries, or its first entry has waited ``linger_ms``."""

    size: int
    linger_ms: int


DEFAULT_CONCURRENCY = 16

MOST_AT_ONCE = 100_000
"""The largest ``concurrency``, as for ``headwater work --concurrency``."""

MOST_IN_BATCH = 10_000
"""The largest ``size`` of a batch. One command settles all its entries, with a result for each."""


@dataclass(frozen=True)
class Consumer:
    """One ``@app.consumer`` or ``@app.batch``. Durations are in milliseconds.

    ``prefetch`` is the maximum number of entries that one process owns at a time, running ones included.
    """

    handler: Callable[..., Any]
    call: Call
    plain: Callable[[Any], Any] | None
    """The handler itself if it takes only a message; otherwise None."""
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
    """The dead-letter stream; empty for a consumer of dead letters, which does not write any."""
    start: str
    """The id after which a new group begins; ``$`` for the stream's last id."""
    delete: bool
    needs: Mapping[str, Dependency] = field(default_factory=dict, compare=False)
    """The handler's parameters that are dependencies."""
    batch: BatchSize | None = None
    """The condition under which a batch is complete; None if the handler gets single messages."""
    order_by: Callable[[Any], Hashable] | None = None
    schedule: Schedule | None = None
    """The schedule of its messages, for a handler of ``@app.every`` or ``@app.cron``; otherwise None."""
    measured: bool = False
    """True if the number of entries read ahead follows the duration of handlers, within ``prefetch``."""
    executor: Executor = "thread"
    recycle: int | None = None

    @property
    def acknowledged(self) -> How:
        """The settlement of an entry whose handler returned: acknowledge it, or also delete it."""
        return How.ACKED if self.delete else How.ACK

    @property
    def isolated(self) -> bool:
        """True if the handler runs in pool processes."""
        return self.executor == "process"

    expires_ms: int | None = None
    expired_dead: bool = False
    """True if an expired entry becomes a dead letter."""
    limits: ConsumerLimits | None = None


def declare_batch(
    handler: Callable[..., Any],
    stream: Stream[Any],
    *,
    size: int = 500,
    linger: str | timedelta = "50ms",
    **options: Unpack[ConsumerOptions],
) -> Consumer:
    """Return the consumer of a handler that gets batches; see `declare`."""
    _check_number("size", size)
    if options.get("order_by") is not None:
        raise DeclarationError("a batch has no order_by: its items are handled together")
    if size > MOST_IN_BATCH:
        raise DeclarationError(f"size={size} is more than {MOST_IN_BATCH:,}, the largest batch")
    if size > 1 and options.get("max_deliveries") == 1:
        raise DeclarationError(
            "max_deliveries=1 allows only one attempt, so one error would turn a whole batch into dead "
            "letters: use max_deliveries=2 or more, size=1, or @app.consumer"
        )
    linger_ms = milliseconds(linger, what="linger", least_ms=0)
    consumer = declare(handler, stream, batch=BatchSize(size, linger_ms), **options)
    if linger_ms >= consumer.claim_after_ms:
        raise DeclarationError(
            f"linger={linger!r} must be shorter than claim_after: entries would wait for longer than a "
            "worker may be silent"
        )
    return consumer


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
    batch: BatchSize | None = None,
    order_by: Callable[[Any], Hashable] | None = None,
    start: str | datetime = "beginning",
    delete: bool = False,
    executor: Executor = "thread",
    recycle: int | None = None,
    **starts: Unpack[StartOptions],
) -> Consumer:
    """Return the consumer that these options declare. Raises `DeclarationError` for options that are invalid or
    contradict each other."""
    _check_streams(stream, into, dead)
    _check_kinds(group, order_by, retry, delete)
    bound = _bind(handler, stream, into, batch)
    claim_after_ms, lease_ms = _lease(claim_after, lease)
    _check_numbers(max_deliveries=max_deliveries, max_crashes=max_crashes)
    measured = prefetch is None and order_by is None
    _check_executor(executor, recycle, bound, (stream, into))
    concurrency, prefetch = _bounds(concurrency, prefetch, batch, executor)
    return Consumer(
        handler=handler,
        call=bound.call,
        plain=bound.plain,
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
        needs=bound.needs,
        batch=batch,
        order_by=order_by,
        measured=measured,
        executor=executor,
        recycle=recycle,
        **_starts(stream, **starts),
    )


def _starts(
    stream: Stream[Any],
    *,
    expires: str | timedelta | None = None,
    on_expired: Literal["drop", "dead"] = "drop",
    limit: Limit | Sequence[Limit] | None = None,
) -> dict[str, Any]:
    """Return the values of `StartOptions` as fields of a `Consumer`."""
    if on_expired not in ("drop", "dead"):
        raise DeclarationError(f"on_expired={on_expired!r} must be 'drop' or 'dead'")
    return {
        "expires_ms": None if expires is None else milliseconds(expires, what="expires"),
        "expired_dead": on_expired == "dead",
        "limits": declared_limits(limit, stream),
    }


def _bind(
    handler: Callable[..., Any],
    stream: Stream[Any],
    into: Stream[Any] | None,
    batch: BatchSize | None,
) -> Bound:
    return bind(
        handler,
        stream.type,
        has_results=into is not None,
        in_batches=batch is not None,
        optional=stream.message_optional,
    )


def with_concurrency(consumer: Consumer, concurrency: int) -> Consumer:
    """Return a copy of the consumer with another ``concurrency``."""
    _check_number("concurrency", concurrency)
    _check_processes(consumer.executor, concurrency)
    prefetch = max(concurrency, consumer.prefetch * concurrency // consumer.concurrency)
    return replace(consumer, concurrency=concurrency, prefetch=prefetch)


def _check_group(group: Any) -> None:
    if not isinstance(group, str) or not group:
        raise DeclarationError(f"group={group!r} must be the name of the consumer group")
    if group.startswith(RESERVED_PREFIX):
        raise DeclarationError(
            f"group={group!r}: names that begin with {RESERVED_PREFIX!r} are reserved; use another name"
        )


def split(consumer: Consumer) -> list[Consumer]:
    """Return one consumer for each partition of its stream. If the stream of results has the same number of
    partitions, results go to the partition with the same number. Each partition has its own dead-letter
    stream, unless ``dead`` names one."""
    stream, into = consumer.stream, consumer.into
    if stream.partitions is None:
        return [consumer]
    whole_dead = dead_letter_stream(stream.name)
    paired = into is not None and into.partitions == stream.partitions
    found = []
    for number, part in enumerate(stream.parts):
        dead = dead_letter_stream(part.name) if consumer.dead == whole_dead else consumer.dead
        results = into.parts[number] if into is not None and paired else into
        found.append(replace(consumer, stream=part, into=results, dead=dead))
    return found


def _check_kinds(group: object, order_by: object, retry: object, delete: object) -> None:
    _check_group(group)
    if order_by is not None and not callable(order_by):
        raise DeclarationError(
            f"order_by={order_by!r} must be a function of the message, as in "
            "`lambda order: order.customer_id`"
        )
    if retry is not None and not isinstance(retry, Backoff):
        raise DeclarationError(f"retry={retry!r} must be a Backoff, or None to retry at once")
    if not isinstance(delete, bool):
        raise DeclarationError(f"delete={delete!r} must be True or False")


def _check_executor(
    executor: object, recycle: object, bound: Bound, streams: Iterable[Stream[Any] | None]
) -> None:
    if executor not in EXECUTORS:
        raise DeclarationError(f"executor={executor!r} must be one of {', '.join(EXECUTORS)}")
    if recycle is not None:
        _check_number("recycle", recycle)
    if executor != "process":
        if recycle is not None:
            raise DeclarationError(
                f'recycle={recycle}: only pool processes (executor="process") are replaced'
            )
        return
    what = f'handler {bound.name} with executor="process"'
    if bound.is_async:
        raise DeclarationError(
            f"{what} is `async def`: pool processes have no event loop. Make it a plain function."
        )
    if "<lambda>" in bound.name or "<locals>" in bound.name:
        raise DeclarationError(
            f"{what}: a pool process imports the handler's module and finds the handler by its name there. Define "
            "it with `def` at the top of a module."
        )
    for stream in streams:
        named = getattr(stream and stream.type, "__qualname__", "")
        if "<locals>" in named:
            raise DeclarationError(
                f"{what}: messages of type {named} are sent between processes, which find the type by its name. "
                "Define it at the top of a module."
            )
    for one in all_of(bound.needs.values()):
        if one.is_async:
            raise DeclarationError(
                f"{what} needs {one.name}, which is async, and pool processes have no event loop: make the "
                "provider synchronous"
            )


def _check_processes(executor: str, concurrency: int) -> None:
    if executor == "process" and concurrency > MOST_PROCESSES:
        raise DeclarationError(
            f'concurrency={concurrency} must be at most {MOST_PROCESSES:,} with executor="process": each one needs a '
            "process"
        )


def _processors() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _lease(claim_after: str | timedelta, lease: str | timedelta | None) -> tuple[int, int]:
    """Return ``claim_after`` and ``lease`` in milliseconds."""
    claim_after_ms = milliseconds(claim_after, what="claim_after", least_ms=100)
    lease_ms = max(1, claim_after_ms // 3)
    if lease is not None:
        lease_ms = milliseconds(lease, what="lease", least_ms=30)
    if lease_ms >= claim_after_ms:
        raise DeclarationError(
            f"lease={lease!r} must be shorter than claim_after={claim_after!r}: other workers claim "
            "entries that were not renewed for that long"
        )
    return claim_after_ms, lease_ms


def check_stream(stream: object, decorator: str) -> None:
    """Raise `DeclarationError` if ``stream`` is not a `Stream`. If ``decorator`` was used without parentheses,
    ``stream`` is the decorated function."""
    if not isinstance(stream, Stream):
        raise DeclarationError(
            f"{stream!r} is not a Stream: write {decorator}(orders, group='billing') with "
            "orders = Stream('orders', Order)"
        )


def _check_streams(stream: Stream[Any], into: Any, dead: Any) -> None:
    if into is not None and not isinstance(into, Stream):
        raise DeclarationError(
            f"into={into!r} is not a Stream: write into=Stream('invoices', Invoice)"
        )
    if dead is not None and (not isinstance(dead, str) or not dead):
        raise DeclarationError(
            f"dead={dead!r} must be the name of the dead-letter stream, as in 'graveyard'; omit it "
            f"for {dead_letter_stream(stream.name)!r}"
        )
    if into is not None and into.name == (dead or dead_letter_stream(stream.name)):
        raise DeclarationError(
            f"into and dead are both {into.name!r}: a consumer of results cannot read dead letters. "
            "Name another stream"
        )
    for option, name in (("into", None if into is None else into.name), ("dead", dead)):
        if name == stream.name:
            raise DeclarationError(
                f"{option}={name!r} is the stream that the consumer reads: it would handle its own "
                f"{'results' if option == 'into' else 'dead letters'} forever. Name another stream"
            )


def _bounds(
    concurrency: int | None, prefetch: int | None, batch: BatchSize | None, executor: Executor
) -> tuple[int, int]:
    for name, given in (("concurrency", concurrency), ("prefetch", prefetch)):
        if given is not None:
            _check_number(name, given)
    if concurrency is not None and concurrency > MOST_AT_ONCE:
        raise DeclarationError(
            f"concurrency={concurrency} must be at most {MOST_AT_ONCE:,}: each one needs a task"
        )
    _check_processes(executor, concurrency or 1)
    if batch is not None and batch.size > 1:
        return _batch_bounds(concurrency or 1, prefetch, batch.size)
    if concurrency is None:
        usual = _processors() if executor == "process" else DEFAULT_CONCURRENCY
        concurrency = min(DEFAULT_CONCURRENCY, usual, prefetch or usual)
    if prefetch is None:
        prefetch = 4 * concurrency
    if prefetch < concurrency:
        raise DeclarationError(
            f"prefetch={prefetch} is less than concurrency={concurrency}: it counts all entries "
            "that a process owns, running ones included"
        )
    return concurrency, prefetch


def _batch_bounds(concurrency: int, prefetch: int | None, size: int) -> tuple[int, int]:
    if prefetch is None:
        prefetch = (concurrency + 1) * size
    if prefetch < concurrency * size:
        raise DeclarationError(
            f"prefetch={prefetch} is less than {concurrency * size}: it counts all entries that a "
            f"process owns, and {concurrency} batches of {size} run at a time"
        )
    return concurrency, prefetch


def _check_numbers(**numbers: object) -> None:
    for name, value in numbers.items():
        _check_number(name, value)


def _check_number(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise DeclarationError(f"{name}={value!r} must be a whole number, at least 1")


def known(options: Mapping[str, object], declared: type) -> None:
    """Raise `DeclarationError` for an option that is not in ``declared``, a TypedDict, and for a required
    option that is missing."""
    allowed: dict[str, object] = get_type_hints(declared, include_extras=True)
    unknown = ", ".join(repr(name) for name in sorted(options.keys() - allowed.keys()))
    if unknown:
        raise DeclarationError(f"unknown option {unknown}: the options are {', '.join(allowed)}")
    # `__required_keys__` is empty, because the annotations are text here.
    missing = [
        name
        for name, kind in allowed.items()
        if get_origin(kind) is Required and name not in options
    ]
    if missing:
        raise DeclarationError(f"a consumer needs {', '.join(f'{name}=' for name in missing)}")


# --- where a new group begins to read -------------------------------------------------------------


WORDS = {"beginning": str(MIN_ID), "new": "$"}


def group_start(start: str | datetime) -> str:
    """Return the id after which a group created with this ``start`` begins.

    >>> from datetime import datetime, timezone
    >>> group_start("beginning"), group_start("new"), group_start("1526569498055-3")
    ('0-0', '$', '1526569498055-3')
    >>> group_start(datetime(2018, 5, 17, 15, 4, 58, 55_000, tzinfo=timezone.utc))
    '1526569498054-18446744073709551615'
    """
    if isinstance(start, datetime):
        return _before(start)
    if start in WORDS:
        return WORDS[start]
    try:
        return str(StreamID.parse(start))
    except (ValueError, AttributeError):
        raise DeclarationError(
            f"start={start!r} must be 'beginning', 'new', the id of an entry such as "
            "'1526569498055-0', or a datetime with a time zone"
        ) from None


def _before(moment: datetime) -> str:
    """Return the greatest id before ``moment``."""
    if moment.tzinfo is None:
        raise DeclarationError(
            f"start={moment!r} has no time zone, so it is ambiguous: use datetime(…, tzinfo=timezone.utc)"
        )
    ms = round(moment.timestamp() * 1000)
    return str(StreamID(*id_before(ms, 0))) if ms > 0 else str(MIN_ID)
