"""A stream that is split by key into several, so that several processes can read it in order.

    orders ──key──▶ orders.{0}, orders.{1}, …, orders.{7}

Rule 1. A key's partition depends on the key and the number of partitions, and on nothing else: not on the
        process, the version of Python, or the client.
Rule 2. The number is the name's hash tag. So partition 3 of one stream and partition 3 of another share a
        slot of a cluster, and so do all keys beside them.
"""

from __future__ import annotations

from zlib import crc32

from headwater.errors import DeclarationError, EncodeError

MOST = 1_024


def partition_name(stream: str, number: int) -> str:
    """The stream of one partition.

    >>> partition_name("orders", 3)
    'orders.{3}'
    """
    return f"{stream}.{{{number}}}"


def partition_of(key: object, partitions: int) -> int:
    """The number of the key's partition: CRC-32 of its text in UTF-8, modulo ``partitions``.

    `EncodeError` for a key that is no string, bytes or whole number: its text may change.

    >>> partition_of("ann", 8), partition_of(17, 8), partition_of("17", 8)
    (3, 2, 2)
    """
    if isinstance(key, bool) or not isinstance(key, str | bytes | int):
        raise EncodeError(
            f"key {key!r:.100} of type {type(key).__name__} cannot choose a partition: it must be a "
            "string, bytes or a whole number"
        )
    data = key if isinstance(key, bytes) else str(key).encode("utf-8", "surrogatepass")
    return crc32(data) % partitions


def check_partitions(stream: str, partitions: object, key: object) -> None:
    """`DeclarationError` for a split that contradicts itself."""
    if partitions is None:
        if key is not None:
            raise DeclarationError(
                f"stream {stream!r}: key= chooses a partition, and the stream has none: give partitions="
            )
        return
    if not isinstance(partitions, int) or isinstance(partitions, bool):
        raise DeclarationError(f"stream {stream!r}: partitions={partitions!r} must be a number")
    if not 1 <= partitions <= MOST:
        raise DeclarationError(
            f"stream {stream!r}: partitions={partitions} must be from 1 to {MOST}"
        )
    if not callable(key):
        raise DeclarationError(
            f"stream {stream!r}: partitions={partitions} needs key=, a function of the message that "
            "chooses its partition, as in `lambda order: order.customer_id`"
        )
    if "{" in stream:
        raise DeclarationError(
            f"stream {stream!r} has a hash tag in its name, which would decide the slot of all its "
            "partitions: use a name without braces"
        )
