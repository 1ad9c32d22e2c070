"""MEMORY: the memory of keys and of the server.

The allocator is Python's and the system's. Values that only jemalloc, Redis's allocator, provides are omitted,
as in a Redis that is built without jemalloc.
"""

from __future__ import annotations

import sys
from typing import Any

from headwater.commands.call import SYNTAX, Call
from headwater.commands.footprint import DEFAULT_SAMPLES, SLOT_BYTES, footprint
from headwater.engine.bodies.codecs import NONE
from headwater.engine.keyspace.memory_totals import state_bytes
from headwater.engine.streams.stream import StoredStream
from headwater.errors import CommandError
from headwater.server.services.memory_use import STARTUP_BYTES, client_bytes, resident_bytes
from headwater.server.services.observability.info import human
from headwater.server.services.services import Services
from headwater.server.session.session import Session

_LITTLE_BYTES = 128 * 1024 * 1024
_FRAGMENTED = 1.5


def memory_usage(call: Call, session: Session, services: Services) -> None:
    """MEMORY USAGE key [SAMPLES count]: the bytes of the key and its value; nil if the key does not exist.

    Of a container with many elements, ``count`` are measured (0: all) and the rest is estimated.
    """
    arguments = call.arguments
    samples = DEFAULT_SAMPLES
    if arguments.count == 5 and arguments.token(3) == b"SAMPLES":
        samples = arguments.integer(4)
        if samples < 0:
            raise CommandError(SYNTAX)
    elif arguments.count != 3:
        raise CommandError(SYNTAX)
    key = arguments.bytes(2)
    value = call.db.lookup(key, call.now_ms)
    if value is None:
        call.reply.nil()
    else:
        own = (
            0 if isinstance(value, StoredStream) else sys.getsizeof(key)
        )  # a stream contains its key
        call.reply.integer(footprint(value, samples=samples) + own + SLOT_BYTES)


def memory_stats(call: Call, session: Session, services: Services) -> None:
    """MEMORY STATS: those of Redis's values that apply here, and the bytes of streams."""
    call.reply.value(_statistics(services))


def _statistics(services: Services) -> dict[str, object]:
    """Return the values of MEMORY STATS, by name."""
    total, peak = services.memory.used(), services.memory.peak
    clients, facts = client_bytes(services.clients), len(services.records.facts.data)
    dataset = state_bytes(services.keyspace)
    found: dict[str, object] = {
        "peak.allocated": peak,
        "total.allocated": total,
        "startup.allocated": STARTUP_BYTES,
        "replication.backlog": 0,
        "clients.slaves": 0,
        "clients.normal": clients,
        "cluster.links": 0,
        "aof.buffer": facts,
    }
    keys = 0
    for db in services.keyspace.databases:
        if db.values:
            keys += len(db.values)
            found[f"db.{db.index}"] = {
                "overhead.hashtable.main": sys.getsizeof(db.values) + SLOT_BYTES * len(db.values),
                "overhead.hashtable.expires": sys.getsizeof(db.expiries),
            }
    sealing = services.keyspace.sealing
    found["streams"] = {
        "hot": sealing.hot_bytes + sealing.kept_bytes,
        "sealed": sealing.sealed_bytes,
        "sealed.as.written": sealing.sealed_size,
    }
    memory = services.keyspace.memory
    found["streams.nodes"], found["streams.pending"] = memory.nodes, memory.pending
    found["streams.groups"], found["streams.idempotency"] = memory.groups, memory.idempotency
    found["keys.values"] = memory.values
    found["overhead.total"] = total - dataset
    found["keys.count"] = keys
    found["keys.bytes-per-key"] = dataset // keys if keys else 0
    found["dataset.bytes"] = dataset
    found["dataset.percentage"] = 100 * dataset / max(1, total - STARTUP_BYTES)
    found["peak.percentage"] = 100 * total / peak
    found["fragmentation"] = resident_bytes() / total
    found["fragmentation.bytes"] = resident_bytes() - total
    return found


def memory_doctor(call: Call, session: Session, services: Services) -> None:
    """MEMORY DOCTOR: the problems with memory, if any, as text."""
    total, peak = services.memory.used(), services.memory.peak
    if total < _LITTLE_BYTES:
        text = f"The process holds {human(total)}, which is too little to be a problem.\n"
    elif peak > _FRAGMENTED * total:
        text = (
            f"The process holds {human(total)} and held {human(peak)} at its peak: something large "
            "was deleted since, or a client left much unread (CLIENT LIST, omem). Nothing to do.\n"
        )
    else:
        text = (
            f"The process holds {human(total)}, about as much as at its peak. MEMORY USAGE shows what "
            "a key takes; XTRIM with MAXLEN or MINID makes streams shorter.\n"
            + _of_entries(services)
        )
    call.reply.verbatim(text.encode())


def _of_entries(services: Services) -> str:
    """Return a text with the compressed share of the streams, and advice on compressing more."""
    sealing = services.keyspace.sealing
    hot = human(sealing.hot_bytes + sealing.kept_bytes)
    if sealing.codec == NONE:
        return f"{hot} of entries are stored as written; stream-compression is none.\n"
    return (
        f"{hot} of entries are stored as written, {human(sealing.sealed_size)} are compressed to "
        f"{human(sealing.sealed_bytes)}; a smaller stream-hot-bytes compresses more.\n"
    )


def memory_purge(call: Call, session: Session, services: Services) -> None:
    """MEMORY PURGE: close the stored blocks that are open for reading, run a full garbage collection, and return
    free memory to the system."""
    services.keyspace.sealing.bodies.close_all()
    services.observer.collections.collect_all()
    trim = _malloc_trim()
    if trim is not None:
        trim(0)
    call.reply.ok()


def _malloc_trim() -> Any:
    """Return the C library's malloc_trim; None if the library does not have one (glibc does)."""
    # Imported here so that the server starts faster.
    import ctypes.util

    library = ctypes.util.find_library("c")
    return getattr(ctypes.CDLL(library), "malloc_trim", None) if library else None


def memory_malloc_stats(call: Call, session: Session, services: Services) -> None:
    """MEMORY MALLOC-STATS: Redis's reply for an allocator without statistics."""
    call.reply.verbatim(b"Stats not supported for the current allocator")
