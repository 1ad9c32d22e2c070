"""Accounts for the memory of a store's state. The owners of the memory report what they allocate.

    entries            `Sealing`, which books every block of entries
    all other parts    `MemoryAccount`: each object books its size when it grows or shrinks, and takes it
                       back when it is freed
    tables, and empty  counted when they are asked for (memory_totals.py)
    streams and groups

Rule 1. An object that books has ``booked``, the number of its bytes in the account, and `book`, which updates
        this number and the account in constant time. Bulk changes may call `book` once at their end.
Rule 2. The constants apply to the compiled package on a 64-bit system. They include the allocator's overhead.
Rule 3. An unlinked stream or group leaves the account when it is freed (garbage.py). A string, list, set or
        hash leaves it immediately.

For a state above 256 MB, the account differs by at most a tenth from the memory that the process takes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from itertools import islice
from typing import Any, TypeVar

from headwater.common.limits import PENDING_BLOCK_RECORDS

T = TypeVar("T")

NODE_BYTES = 70
"""Bytes per node: seven words and a reference to its names, with the spare capacity of their arrays."""

RUN_BYTES = 50
"""Bytes per run of the delivery order: six words, with the spare capacity of their arrays."""

INDEX_BYTES = 320
"""Bytes per run in the index of the delivery order: three tuples and four numbers."""

BLOCK_BYTES = 224
"""Bytes per block of pending entries without its records."""

FULL_BLOCK_BYTES = BLOCK_BYTES + 32 * PENDING_BLOCK_RECORDS
"""Bytes per block of pending entries with space for the maximum number of records."""

CONSUMER_BYTES = 167
"""Bytes per consumer without its name: the object and its places by name and number."""

RELEASED_BYTES = 135
"""Bytes per released entry: its id as the key of a dictionary."""

DELAYED_BYTES = 310
"""Bytes per delayed entry: its id as the key of a dictionary, and its place in the order of due times."""

PRODUCER_BYTES = 1310
"""Bytes per idempotent producer without its name."""

IID_BYTES = 250
"""Bytes per idempotent id without its text."""

_TEXT_BYTES = 48
"""The header of a bytes object, 33 bytes, and 15 to round the sum up to a multiple of the allocator's 16."""

_SAMPLE = 1000
"""Maximum number of members of a value that are measured. The others are counted at the average size of these."""


class MemoryAccount:
    """Bytes of all parts that book themselves (rule 1).

    >>> account = MemoryAccount()
    >>> account.nodes += 70
    >>> account.total()
    70
    """

    def __init__(self) -> None:
        self.nodes = 0
        """The nodes of streams."""
        self.pending = 0
        """Pending entries, and the order of their deliveries."""
        self.groups = 0
        """Consumers, and released and delayed entries."""
        self.idempotency = 0
        """Idempotent producers and their ids."""
        self.values = 0
        """Keys, strings, lists, sets and hashes, without the tables of keys."""

    def total(self) -> int:
        """Return the sum of all parts."""
        return self.nodes + self.pending + self.groups + self.idempotency + self.values


def text_bytes(text: bytes) -> int:
    """Return the memory of a bytes object in bytes; 0 if its length is 0 or 1, because Python shares these objects.

    >>> text_bytes(b"orders"), text_bytes(bytes(16)), text_bytes(b"1")
    (48, 64, 0)
    """
    return (len(text) + _TEXT_BYTES) & -16 if len(text) > 1 else 0


def sampled(values: Collection[T], weight: Callable[[T], int]) -> int:
    """Return the sum of the weights of ``values``. If there are many, estimate it from the first ones.

    >>> sampled(range(10_000), lambda _: 3)
    30000
    """
    count, measured = len(values), sum(map(weight, islice(values, _SAMPLE)))
    return measured if count <= _SAMPLE else measured * count // _SAMPLE


def table_bytes(table: dict[Any, Any]) -> int:
    """Return the memory of a dictionary without its keys and values. Frees the table of an empty dictionary."""
    if not table:
        table.clear()
    return sys.getsizeof(table)


def container_bytes(value: Collection[bytes]) -> int:
    """Return the memory of a list, set or hash with all that it contains. If it is large, this is an estimate
    from its first members.

    >>> container_bytes({b"tea", b"milk"}) - container_bytes({b"tea"})
    48
    """
    size = sys.getsizeof(value) + sampled(value, text_bytes)
    return size + sampled(value.values(), text_bytes) if isinstance(value, dict) else size
