"""Partitions: a stream that is split by key into several, so that several processes can read it in order.

    orders ──key──▶ orders.{0}, orders.{1}, …, orders.{7}

Rule 1. A key's partition depends only on the key and the number of partitions: not on the process, the version
        of Python, or the client.
Rule 2. The partition's number is the hash tag of its name. So partition 3 of one stream and partition 3 of
        another are in the same slot of a cluster, with all their related keys.
"""

from __future__ import annotations

from zlib import crc32

from headwater.errors import DeclarationError, EncodeError

MOST = 1_024


def partition_name(stream: str, number: int) -> str:
    """Return the name of a partition's stream.

    >>> partition_name("orders", 3)
    'orders.{3}'
    """
    return f"{stream}.{{{number}}}"


def partition_of(key: object, partitions: int) -> int:
    """Return the number of the key's partition: CRC-32 of its text in UTF-8, modulo ``partitions``.

    Raises `EncodeError` if the key is not a string, bytes or an integer, because its text may change.

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
    """Raise `DeclarationError` for a wrong number of partitions, a missing key, or an unsuitable name."""
    if partitions is None:
        if key is not None:
            raise DeclarationError(
                f"stream {stream!r}: key= chooses a partition, but the stream has none: add partitions="
            )
        return
    if not isinstance(partitions, int) or isinstance(partitions, bool):
        raise DeclarationError(f"stream {stream!r}: partitions={partitions!r} must be an integer")
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
