"""``@app.every`` and ``@app.cron``: a function that is called at declared times.

The function is a consumer of a stream of ticks, in the group ``ticks``. `schedules` adds the ticks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple, TypedDict

from headwater.errors import DeclarationError, DecodeError, EncodeError
from headwater.groups.settling.ticks import GROUP
from headwater.messages.codecs import MessageCodec
from headwater.messages.keys import RESERVED, Pairs
from headwater.worker.declare.declaration import Consumer, declare, known
from headwater.worker.declare.delivery import Delivery
from headwater.worker.declare.retry import Backoff
from headwater.worker.declare.schedules import MOST_TICKS, Missed, Schedule, Times
from headwater.worker.declare.stream import Stream


class Tick(NamedTuple):
    """One call of a function that was declared with `App.every` or `App.cron`."""

    time: datetime
    """The scheduled time of the call, in the declared time zone; UTC for `App.every`. The call itself may be
    later."""


class ScheduleOptions(TypedDict, total=False):
    """The options of ``@app.every`` and ``@app.cron``; none is required. Other defaults are those of
    `ConsumerOptions`."""

    missed: Missed
    """Choice of the missed ticks to add. A tick is missed if it is over a minute late because no worker ran.
    ``"last"``, the default, adds only the last one, ``"skip"`` none, and ``"all"`` up to the last 1,000."""
    name: str
    """The name of the stream of ticks. By default the names of the app and the function: ``shop.sweep``."""
    claim_after: str | timedelta
    """Maximum time for which an owner may be silent before another worker claims its tick."""
    lease: str | timedelta
    """Time for which a renewal of an owned tick is valid."""
    concurrency: int
    """Maximum number of ticks that one process handles at a time."""
    retry: Backoff | None
    """Retry policy: the wait of a tick after the function raised."""
    max_deliveries: int
    """Number of failed deliveries after which a tick becomes a dead letter."""
    max_crashes: int
    """Number of deaths of processes in which a tick ran alone, after which it becomes a dead letter."""
    timeout: str | timedelta | None
    """Maximum run time of the function, which is then cancelled; in a thread, the worker process is replaced."""
    into: Stream[Any] | None
    """The stream to which results are published, in one step with the acknowledgement."""
    dead: str | None
    """The name of the dead-letter stream."""


class _Codec(MessageCodec):
    """Decodes ticks. Workers write them, with their times as ids."""

    name = "tick"

    def encode(self, message: Any) -> Pairs:
        raise EncodeError(f"{message!r}: only workers write ticks")

    def decode_flat(self, flat: Sequence[bytes]) -> Tick:
        fields = dict(zip(flat[::2], flat[1::2], strict=True))
        try:
            return Tick(datetime.fromisoformat(fields[b"time"].decode()))
        except (KeyError, ValueError) as error:
            raise DecodeError(
                f"the entry is not a tick: it has no valid field 'time' ({error})"
            ) from error


class TickStream(Stream[Tick]):
    """A stream of ticks. The ids are the times of the ticks."""

    message_optional = True

    def __init__(self, name: str) -> None:
        super().__init__(name, Tick, codec="json", maxlen=MOST_TICKS)
        self.codec = _Codec(Tick)


def declare_schedule(
    handler: Callable[..., Any], times: Times, app: str, options: ScheduleOptions
) -> Consumer:
    """Return the consumer of a function's ticks. Raises `DeclarationError` as `declare` does."""
    known(options, ScheduleOptions)
    given: dict[str, Any] = dict(options)
    missed: Missed = given.pop("missed", "last")
    if missed not in ("skip", "last", "all"):
        raise DeclarationError(f"missed={missed!r} must be 'skip', 'last' or 'all'")
    function = handler.func if isinstance(handler, partial) else handler
    own = getattr(function, "__name__", type(function).__name__)
    name = given.pop("name", f"{app}.{own}")
    if not isinstance(name, str) or not name or RESERVED in name:
        raise DeclarationError(f"name={name!r} must be the name of a stream, such as 'shop.sweep'")
    consumer = declare(handler, TickStream(name), group=GROUP, **given)
    call, zone = consumer.call, times.zone

    def with_time(_message: Any, delivery: Delivery, **values: Any) -> Any:
        ms = int(delivery.id.partition("-")[0])
        return call(Tick(datetime.fromtimestamp(ms / 1000, zone)), delivery, **values)

    schedule = Schedule(name, times, missed)
    return replace(consumer, call=with_time, plain=None, schedule=schedule)
