"""Sums and checks of a store's memory (memory_account.py)."""

from __future__ import annotations

import sys
from collections import deque
from typing import Any

from headwater.engine.accounts.memory_account import table_bytes
from headwater.engine.keyspace.keyspace import Keyspace

STREAM_BYTES = 670
"""Bytes per empty stream with its key's place, without its blocks."""

GROUP_BYTES = 1280
"""Bytes per empty group."""

_INT_BYTES = 32
_NOTE_BYTES = 80
"""Bytes per tuple of two, without its parts."""


def tables_bytes(keyspace: Keyspace) -> int:
    """Return the memory of the tables of keys, and of empty streams and groups, which do not book themselves."""
    size = STREAM_BYTES * len(keyspace.streams) + GROUP_BYTES * len(keyspace.groups)
    size += sum(map(sys.getsizeof, (keyspace.streams, keyspace.groups, keyspace.due_notes)))
    for database in keyspace.databases:
        order = database.order
        size += order.stale_bytes + database.noted_bytes
        size += database.used_bytes * len(database.used) // max(1, len(database.values))
        for table in (database.values, database.expiries, database.used, database.account.sizes):
            size += table_bytes(table)
        for column in (order.names, order.numbers, database.expiry_notes):
            size += sys.getsizeof(column)
        notes = len(database.expiry_notes)
        numbers = max(notes, len(database.expiries))  # a valid note shares the number of its key
        size += _INT_BYTES * (numbers + len(database.used) + len(database.account.sizes))
        size += _NOTE_BYTES * notes
    return size


def state_bytes(keyspace: Keyspace) -> int:
    """Return the memory of the whole state, including entries."""
    sealing = keyspace.sealing
    entries = sealing.memory_bytes()
    return keyspace.memory.total() + entries + tables_bytes(keyspace)


def book_all(keyspace: Keyspace) -> None:
    """Book every part of every stream, after they were changed in bulk."""
    for stream in keyspace.streams.values():
        stream.nodes.book()
        stream.idempotency.book()
        for group in stream.groups.values():
            group.book()
            group.pel.book()
            group.order.book()


def account_faults(keyspace: Keyspace) -> list[str]:
    """Return a sentence for each fault of the account, such as a total that is less than the sum of its parts."""
    sums = dict.fromkeys(("nodes", "pending", "groups", "idempotency"), 0)
    for stream in keyspace.streams.values():
        sums["nodes"] += stream.nodes.booked
        sums["idempotency"] += stream.idempotency.booked
        for group in stream.groups.values():
            sums["groups"] += group.booked
            sums["pending"] += group.pel.booked + group.order.booked
    account: Any = keyspace.memory
    found = [
        f"{size} bytes of {name} are booked, the account has {getattr(account, name)}"
        for name, size in sums.items()
        if getattr(account, name) < size  # garbage is in the account too
    ]
    values = sum(database.account.bytes for database in keyspace.databases)
    if values != account.values:
        found.append(f"databases have {values} bytes of values, the account has {account.values}")
    for database in keyspace.databases:
        containers = {k for k, v in database.values.items() if isinstance(v, (dict, set, deque))}
        if containers != set(database.account.sizes):
            found.append(f"database {database.index} has sizes of other keys than its containers")
    return found
