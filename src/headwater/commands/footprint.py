"""How many bytes a value takes in this process, all that it holds included.

What Python objects refer to is walked and measured; a container of many parts is measured by a
sample of them, spread evenly, and scaled up. Numbers of the allocator are not visible from here:
the figure is what was asked for, which is within a few percent of what is used.
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

from headwater.engine.database import Database
from headwater.engine.facts import FactBuffer
from headwater.engine.keyspace import Keyspace
from headwater.engine.nodes import Weighing
from headwater.engine.sealing import Sealing

DEFAULT_SAMPLES = 128
"""Parts of a container that are looked at. Redis looks at 5; blocks here differ more in size."""

MANY = 5_000
FEW_SAMPLES = 8
"""When so many parts have been looked at, containers that follow are measured by a few: what holds
others that hold others would else hold the server up."""

SLOT_BYTES = 104
"""What a key costs in its database beside key and value: a place in a dictionary of at most two
thirds, and in the order of keys."""

_OUTSIDE = (
    type,
    ModuleType,
    FunctionType,
    BuiltinFunctionType,
    MethodType,
    Keyspace,
    Database,
    FactBuffer,
    Sealing,
    Weighing,
)
"""What a value refers to and does not own."""

_SMALL_INT = 256
_OBJECT_SLOT = 8
_OBJECT_HEADER = 16
"""An object's attributes stand in an array beside it, which getsizeof does not know of."""


def footprint(value: object, *, samples: int = DEFAULT_SAMPLES) -> int:
    """Bytes of ``value`` and of what it owns; ``samples`` 0 looks at every part.

    >>> footprint(b"x" * 1000) >= 1000
    True
    >>> round(footprint([bytes(100 + n % 3) for n in range(10_000)]) / 1_420_000, 1)
    1.0
    """
    return round(_Walk(samples).size(value))


def _bytes_within(value: object) -> list[object]:
    """What a compiled object holds in fields of a type that can be part of no cycle: the collector
    of cycles, whom we ask for all others, does not tell of them."""
    if type(value).__dictoffset__:
        return []
    found = (
        getattr(value, name)
        for name, descriptor in vars(type(value)).items()
        if isinstance(descriptor, GetSetDescriptorType) and not name.startswith("__")
    )
    return [field for field in found if isinstance(field, (bytes, bytearray))]


class _Walk:
    def __init__(self, samples: int) -> None:
        self._samples = samples
        self._seen: set[int] = set()
        self._held: list[object] = []
        """Keeps what was seen alive, so that no id is used twice meanwhile."""

    def size(self, value: object) -> float:
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
            step += 1  # of a dictionary's parts every second is a key
        looked_at = parts[::step]
        if looked_at:
            total += sum(map(self.size, looked_at)) * len(parts) / len(looked_at)
        return total
