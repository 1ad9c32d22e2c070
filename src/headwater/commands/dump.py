"""DUMP: a value as bytes that another Headwater, Redis or Valkey server can restore.

Source: Redis's command page and cluster.c (dumpCommand).
"""

from __future__ import annotations

import heapq
from collections import deque

from headwater.commands.call import Call
from headwater.commands.jobs import Job, carry_out, may_offload
from headwater.commands.stream_images import image_of, retime
from headwater.commands.times import WallOffset
from headwater.common.limits import LARGE_VALUE_BYTES, LARGE_VALUE_PARTS
from headwater.common.steps import Steps
from headwater.engine.image.snapshot import StreamSnapshot
from headwater.engine.keyspace.database import Value
from headwater.engine.streams.stream import StoredStream
from headwater.rdb.image import HashImage, Image, ListImage, SetImage
from headwater.rdb.values import dump as write

_SORTED_AT_ONCE = 4096


def dump(call: Call) -> Job | None:
    """DUMP key → the value as bytes, nil if the key does not exist."""
    value = call.read(call.arguments.bytes(1))
    if value is None:
        call.reply.nil()
        return None
    large = _is_large(value) and may_offload(call)
    if isinstance(value, StoredStream) and not large:
        blocks = [block.packed for block in value.log.blocks if block.packed is not None]
        stored = {one: (0, one.count) for one in blocks if one.blob is not None}
        call.keyspace.sealing.bodies.hold(stored)
    steps = _payload(_snapshot(value), call.settings.dump_format, call.wall.copy())
    job = Job(call.arguments, steps, _answer)
    if large:
        job.arguments = call.arguments.copy()
        return job
    carry_out(call, job)
    return None


def _answer(call: Call, payload: bytes) -> None:
    call.reply.bulk(payload)


def _is_large(value: Value) -> bool:
    """Return whether the value is so large that an offloaded job dumps it."""
    if isinstance(value, StoredStream):
        parts = value.length + value.idempotency.tracked
        parts += sum(len(group.pel) + len(group.by_cid) for group in value.groups.values())
        return parts >= LARGE_VALUE_PARTS or value.log.size() >= LARGE_VALUE_BYTES
    return len(value) >= (LARGE_VALUE_BYTES if isinstance(value, bytes) else LARGE_VALUE_PARTS)


def _snapshot(value: Value) -> StreamSnapshot | Image:
    """Return a copy of the current value that later changes do not affect."""
    if isinstance(value, StoredStream):
        return StreamSnapshot(value)
    if isinstance(value, dict):
        return HashImage(list(value.items()))
    if isinstance(value, deque):
        return ListImage(list(value))
    return SetImage(list(value)) if isinstance(value, set) else value


def _payload(value: StreamSnapshot | Image, form: str, wall: WallOffset) -> Steps[bytes]:
    """Return the payload of DUMP in the format ``form`` (dump-format)."""
    image: Image
    if isinstance(value, StreamSnapshot):
        image = yield from image_of(value)
        if wall.ahead_ms:
            yield from retime(image, wall.wall_ms)
    elif isinstance(value, SetImage):
        image = SetImage((yield from _sorted(value.members)))
    else:
        image = value
    return bytes((yield from write(image, form)))


def _sorted(members: list[bytes]) -> Steps[list[bytes]]:
    """Return the members in byte order, so that equal sets have equal payloads."""
    parts = []
    for at in range(0, len(members), _SORTED_AT_ONCE):
        parts.append(sorted(members[at : at + _SORTED_AT_ONCE]))
        yield
    found: list[bytes] = []
    for number, member in enumerate(heapq.merge(*parts), 1):
        found.append(member)
        if number % _SORTED_AT_ONCE == 0:
            yield
    return found
