"""``@app.on_dead``: a function that is called for each dead letter of a stream.

The function is a consumer of the dead-letter stream, in the group `ON_DEAD_GROUP`. So one of the workers calls it
for each record, at least once, even if a worker crashes.

Rule. A dead letter does not cause another dead letter. A record on which the function fails ``max_deliveries``
times is acknowledged, with an error in the log, and stays in the dead-letter stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypedDict

from headwater.errors import DeclarationError, EncodeError
from headwater.messages.codecs import MessageCodec
from headwater.messages.dead import DeadLetter, parse_dead_letter
from headwater.messages.keys import RESERVED_PREFIX, Pairs, dead_letter_stream
from headwater.worker.declare.declaration import Consumer, declare, known
from headwater.worker.declare.delivery import Delivery
from headwater.worker.declare.retry import Backoff
from headwater.worker.declare.stream import Stream

ON_DEAD_GROUP = f"{RESERVED_PREFIX}on_dead"


class OnDeadOptions(TypedDict, total=False):
    """The options of ``@app.on_dead``; none is required. Defaults are those of `ConsumerOptions`."""

    claim_after: str | timedelta
    """Maximum time for which an owner may be silent before another worker claims its records."""
    lease: str | timedelta
    """Time for which a renewal of owned records is valid."""
    concurrency: int
    """Maximum number of records that one process handles at a time."""
    prefetch: int
    """Maximum number of records that one process owns at a time."""
    retry: Backoff | None
    """Retry policy: the wait of a record after the function raised."""
    max_deliveries: int
    """Number of failed deliveries after which a record is acknowledged. It stays in the dead-letter stream."""
    timeout: str | timedelta | None
    """Maximum run time of the function, which is then cancelled; in a thread, its process ends (`ConsumerOptions`)."""


class _Codec(MessageCodec):
    """Decodes records. Workers write them, in one step with the settlement of the entry."""

    name = "dead"

    def encode(self, message: Any) -> Pairs:
        raise EncodeError(f"{message!r}: only workers write dead letters")

    def decode_flat(self, flat: Sequence[bytes]) -> DeadLetter:
        return parse_dead_letter("", flat)


class DeadLetters(Stream[DeadLetter]):
    """A dead-letter stream, for reading."""

    def __init__(self, name: str) -> None:
        super().__init__(name, DeadLetter, codec="json")
        self.codec = _Codec(DeadLetter)


def stream_of_dead(stream: Stream[Any] | str, consumers: Sequence[Consumer]) -> str:
    """Return the name of the dead-letter stream of ``stream``. A string is already this name."""
    if isinstance(stream, str):
        return stream
    if not isinstance(stream, Stream):
        raise DeclarationError(
            f"{stream!r}: expected a Stream, or the name of a dead-letter stream"
        )
    names = {one.dead for one in consumers if one.stream.name == stream.name}
    if len(names) > 1:
        raise DeclarationError(
            f"the consumers of {stream.name!r} have several dead-letter streams "
            f"({', '.join(sorted(names))}): give on_dead the name of one"
        )
    return names.pop() if names else dead_letter_stream(stream.name)


def declare_on_dead(handler: Callable[..., Any], name: str, options: OnDeadOptions) -> Consumer:
    """Return the consumer of the dead-letter stream ``name``. Raises `DeclarationError` as `declare` does."""
    known(options, OnDeadOptions)
    consumer = declare(handler, DeadLetters(name), group="on_dead", **options)
    call = consumer.call

    def with_id(letter: DeadLetter, delivery: Delivery, **values: Any) -> Any:
        return call(letter._replace(id=delivery.id), delivery, **values)

    return replace(consumer, call=with_id, plain=None, group=ON_DEAD_GROUP, dead="")
