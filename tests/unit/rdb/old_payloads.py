"""Creates payloads that no available server writes, from the description of the format and without
`headwater.rdb`: a reader must not be tested with its own writer.

Source: Redis, rdb.c and lzf_c.c.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

POLYNOMIAL = 0xAD93D23594C935A9

ID = tuple[int, int]


def reflected(value: int, bits: int) -> int:
    return int(f"{value:0{bits}b}"[::-1], 2)


def bitwise_crc64(data: bytes) -> int:
    """Compute the checksum bit by bit, highest bit first, as its definition says."""
    crc = 0
    for byte in data:
        crc ^= reflected(byte, 8) << 56
        for _ in range(8):
            crc = crc << 1 ^ (POLYNOMIAL if crc >> 63 else 0)
            crc &= 2**64 - 1
    return reflected(crc, 64)


def sealed(body: bytes, version: int = 10) -> bytes:
    """Make a payload of ``body``, a type byte and a value."""
    body += struct.pack("<H", version)
    return body + struct.pack("<Q", bitwise_crc64(body))


def length(number: int) -> bytes:
    if number < 64:
        return bytes([number])
    if number < 16384:
        return struct.pack(">H", 0x4000 | number)
    return struct.pack(">BQ", 0x81, number)


def string(text: bytes) -> bytes:
    return length(len(text)) + text


def lzf(text: bytes) -> bytes:
    """Compress greedily: the longest repetition that the format can express, or a literal."""
    out = bytearray()
    literal = bytearray()

    def flush() -> None:
        for at in range(0, len(literal), 32):
            run = literal[at : at + 32]
            out.append(len(run) - 1)
            out.extend(run)
        literal.clear()

    at = 0
    while at < len(text):
        size, back = longest(text, at)
        if size < 3:
            literal.append(text[at])
            at += 1
            continue
        flush()
        high, low = (back - 1) >> 8, (back - 1) & 255
        code = size - 2
        out.extend([code << 5 | high, low] if code < 7 else [7 << 5 | high, code - 7, low])
        at += size
    flush()
    return bytes(out)


def longest(text: bytes, at: int) -> tuple[int, int]:
    """Return size and distance of the longest repetition at ``at``: at most 264 bytes, 8,192 back."""
    best = (0, 0)
    for start in range(max(0, at - 8192), at):
        size = 0
        while size < 264 and at + size < len(text) and text[start + size] == text[at + size]:
            size += 1
        best = max(best, (size, at - start))
    return best


def packed(text: bytes) -> bytes:
    """Encode a string compressed by LZF."""
    body = lzf(text)
    return b"\xc3" + length(len(body)) + length(len(text)) + body


def listpack(elements: Sequence[int | bytes]) -> bytes:
    """Encode elements as strings of up to 4,095 bytes or as integers of 64 bits: two encodings of many."""
    body = b""
    for element in elements:
        if isinstance(element, int):
            entry = b"\xf4" + struct.pack("<q", element)
        else:
            entry = struct.pack(">H", 0xE000 | len(element)) + element
        size = len(entry)
        body += entry + (bytes([size]) if size < 128 else bytes([size >> 7, size & 127 | 128]))
    return struct.pack("<IH", 7 + len(body), len(elements)) + body + b"\xff"


def node(entries: Sequence[tuple[ID, Sequence[bytes], bool]], *, lzf: bool = False) -> bytes:
    """Encode a node of (id, fields and values, alive)."""
    (ms, seq), first, _ = entries[0]
    names = list(first[0::2])
    alive = sum(live for _, _, live in entries)
    elements: list[int | bytes] = [alive, len(entries) - alive, len(names), *names, 0]
    for (entry_ms, entry_seq), fields, live in entries:
        same = list(fields[0::2]) == names
        parts: list[int | bytes] = [
            (0 if live else 1) | (2 if same else 0),
            entry_ms - ms,
            entry_seq - seq,
        ]
        parts += list(fields[1::2]) if same else [len(fields) // 2, *fields]
        elements += [*parts, len(parts)]
    text = listpack(elements)
    return string(struct.pack(">QQ", ms, seq)) + (packed(text) if lzf else string(text))


def two_lengths(entry_id: ID) -> bytes:
    return length(entry_id[0]) + length(entry_id[1])


def raw(entry_id: ID) -> bytes:
    return struct.pack(">QQ", *entry_id)


Pending = tuple[ID, int, int]
Consumer = tuple[bytes, int, int, Sequence[ID]]


def group(
    kind: int,
    name: bytes,
    last_id: ID,
    entries_read: int,
    pending: Sequence[Pending],
    consumers: Sequence[Consumer],
    released: Sequence[ID] = (),
) -> bytes:
    """Encode a group as type ``kind`` does; consumers are (name, seen, active, ids)."""
    out = string(name) + two_lengths(last_id)
    if kind >= 19:
        out += length(entries_read % 2**64)
    out += length(len(pending))
    for entry_id, time, count in pending:
        out += raw(entry_id) + struct.pack("<q", time) + length(count)
    out += length(len(consumers))
    for consumer, seen, active, ids in consumers:
        out += string(consumer) + struct.pack("<q", seen)
        if kind >= 21:
            out += struct.pack("<q", active)
        out += length(len(ids)) + b"".join(map(raw, ids))
    if kind >= 27:
        out += length(len(released)) + b"".join(map(raw, released))
    return out


Producers = Sequence[tuple[bytes, Sequence[tuple[bytes, ID]]]]


def idempotency(
    duration: int, size: int, producers: Producers = (), added: int = 0, duplicates: int = 0
) -> bytes:
    out = length(duration) + length(size) + length(len(producers))
    for pid, iids in producers:
        out += string(pid) + length(len(iids))
        out += b"".join(string(iid) + two_lengths(entry_id) for iid, entry_id in iids)
    return out + length(added) + length(duplicates)


def stream(
    kind: int,
    nodes: Sequence[bytes],
    size: int,
    last_id: ID,
    *,
    first_id: ID = (0, 0),
    max_deleted_id: ID = (0, 0),
    added: int = 0,
    groups: Sequence[bytes] = (),
    known: bytes = b"",
) -> bytes:
    """Encode the value of a stream with its type byte."""
    out = bytes([kind]) + length(len(nodes)) + b"".join(nodes)
    out += length(size) + two_lengths(last_id)
    if kind >= 19:
        out += two_lengths(first_id) + two_lengths(max_deleted_id) + length(added)
    return out + length(len(groups)) + b"".join(groups) + known
