"""The memory that a value occupies in this process, including everything that it owns (MEMORY USAGE).

All objects that the value refers to are measured. Of a container with many elements, an evenly spread sample is
measured and scaled up. The allocator's overhead is not visible from Python, so the result is the requested
memory, which is within a few percent of the memory in use.
"""

from __future__ import annotations

import gc
import sys
from types import (
    BuiltinFunctionType,
    FunctionType,
    GetSetDescriptorType,
    MethodType,
    ModuleType,
)

from headwater.engine.bodies.blobs import SegmentUse
from headwater.engine.facts.facts import FactBuffer
from headwater.engine.keyspace.database import Database
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.engine.redis_nodes.nodes import Weighing
from headwater.engine.tier.sealing import Sealing

DEFAULT_SAMPLES = 128
"""Number of elements to measure in a container. Redis measures 5; Headwater's blocks differ more in size."""

MANY = 5_000
FEW_SAMPLES = 8
"""Number of elements to measure in each further container once `MANY` objects were measured. Otherwise deeply
nested containers would block the server for too long."""

SLOT_BYTES = 104
"""Memory for a key in its database, in bytes, in addition to key and value: a place in a dictionary, which is at most
two thirds full, and a place in the order of keys."""

_OUTSIDE = (
    type,
    ModuleType,
    FunctionType,
    BuiltinFunctionType,
    MethodType,
    Keyspace,
    Database,
    FactBuffer,
    SegmentUse,
    Sealing,
    Weighing,
)
"""Types of objects that a value refers to but does not own."""

_SMALL_INT = 256
_OBJECT_SLOT = 8
_OBJECT_HEADER = 16
"""Size of the array of an object's attributes, which getsizeof does not include: its header, and each slot."""


def footprint(value: object, *, samples: int = DEFAULT_SAMPLES) -> int:
    """Return the size of ``value`` and of what it owns, in bytes. ``samples`` 0 measures every element.

    >>> footprint(b"x" * 1000) >= 1000
    True
    >>> round(footprint([bytes(100 + n % 3) for n in range(10_000)]) / 1_420_000, 1)
    1.0
    """
    return round(_Walk(samples).size(value))


def _bytes_within(value: object) -> list[object]:
    """Return the ``bytes`` and ``bytearray`` objects in the fields of a compiled object. `gc.get_referents` omits them,
    because they cannot be part of a reference cycle."""
    if type(value).__dictoffset__:
        return []
    found = (
        getattr(value, name)
        for name, descriptor in vars(type(value)).items()
        if isinstance(descriptor, GetSetDescriptorType) and not name.startswith("__")
    )
    return [field for field in found if isinstance(field, (bytes, bytearray))]


class _Walk:
    """One measurement, in which each object is counted once."""

    def __init__(self, samples: int) -> None:
        self._samples = samples
        self._seen: set[int] = set()
        self._held: list[object] = []
        """Keeps objects alive, so that no id is reused during the walk."""

    def size(self, value: object) -> float:
        """Return the size of ``value`` and of what it owns, in bytes; 0 if it was counted before."""
        if value is None or isinstance(value, (bool, *_OUTSIDE)) or id(value) in self._seen:
            return 0.0
        if isinstance(value, int) and 0 <= value <= _SMALL_INT:
            return 0.0
        self._seen.add(id(value))
        self._held.append(value)
        total = float(sys.getsizeof(value))
        parts = gc.get_referents(value)
        if not isinstance(value, (dict, list, tuple, set, frozenset)):
            parts += _bytes_within(value)
            if type(value).__dictoffset__ and parts:
                total += _OBJECT_HEADER + _OBJECT_SLOT * len(parts)
            return total + sum(map(self.size, parts))
        samples = self._samples
        if samples and len(self._held) > MANY:
            samples = min(samples, FEW_SAMPLES)
        step = 1 if not samples else max(1, len(parts) // (2 * samples))
        if step % 2 == 0:
            step += 1  # every second element of a dictionary is a key
        looked_at = parts[::step]
        if looked_at:
            total += sum(map(self.size, looked_at)) * len(parts) / len(looked_at)
        return total
