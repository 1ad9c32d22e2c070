"""Values of every type: what their type byte means, and which of several forms is written.

    0 string    1 list  2 set  4 hash        lengths and strings, one after the other
    18 list     quicklist: listpacks, and plain strings for what is large
    11 set      intset: integers of one width
    20 set, 16 hash                          one listpack
    15, 19, 21, 26, 27 stream                streams.py

Written are 0, 1, 2, 4, which every server reads and turns into what it likes best, and the type of
stream that was asked for. What Redis 7.0 and later, and Valkey, write of these values is read, and
from before that streams: 5.0 to 6.2 wrote small lists, sets and hashes in forms that are gone.
A hash whose fields expire (22 to 25), a sorted set and a module's value have no place here.

Source: Redis, rdb.h and rdb.c, intset.c.
"""

from __future__ import annotations

from collections.abc import Callable

from headwater.rdb import streams
from headwater.rdb.image import HashImage, Image, ListImage, SetImage, StreamImage
from headwater.rdb.lengths import Reader, put_length, put_string
from headwater.rdb.listpack import text
from headwater.rdb.payload import REDIS_NEWEST, BadPayload, unwrap, wrap

_PLAIN, _PACKED = 1, 2
"""What a quicklist says of each of its nodes."""

_LISTS_AND_HASHES = 10
"""The version of Redis 7.0; its servers, and all after it, read what is written here."""

STREAM_FORMS = {
    "7.0": (streams.COUNTED, 10),
    "8.2": (streams.ACTIVE, 11),
    "8.8": (streams.RELEASED, REDIS_NEWEST),
}
"""``dump-format`` → stream type and the version that it came with. Redis 7.2, whose type 8.2 has,
said 11, which Valkey reads; it does not read the 12 that Redis 8.2 says."""


def load(payload: bytes) -> Image:
    """The value in a payload of DUMP.

    >>> load(dump(b"tea", "8.8"))
    b'tea'

    Raises `BadEnvelope` and `BadPayload`, nothing else. Bytes behind the value are let be, as
    Redis does.
    """
    reader = Reader(unwrap(payload))
    kind = reader.take(1)[0]
    if kind in streams.TYPES:
        return streams.read(kind, reader)
    if kind not in _READERS:
        raise BadPayload(f"values of type {kind} are not known")
    return _READERS[kind](reader)


def dump(image: Image, form: str) -> bytes:
    """A payload of DUMP, a stream in one of `STREAM_FORMS`."""
    if isinstance(image, StreamImage):
        kind, version = STREAM_FORMS[form]
        return wrap(bytes((kind,)) + streams.write(kind, image), version=version)
    out = bytearray()
    if isinstance(image, bytes):
        out.append(0)
        put_string(out, image)
    elif isinstance(image, HashImage):
        out.append(4)
        put_length(out, len(image.pairs))
        for pair in image.pairs:
            put_string(out, pair[0])
            put_string(out, pair[1])
    else:
        out.append(1 if isinstance(image, ListImage) else 2)
        put_length(out, len(image[0]))
        for item in image[0]:
            put_string(out, item)
    return wrap(bytes(out), version=_LISTS_AND_HASHES)


def _string(reader: Reader) -> Image:
    return reader.string()


def _texts(reader: Reader, each: int = 1) -> list[bytes]:
    """So many strings as a length says, ``each`` for one that it counts."""
    return [reader.string() for _ in range(each * reader.count(each))]


def _packed(reader: Reader) -> list[bytes]:
    return [text(element) for element in reader.packed()]


def _list(items: list[bytes]) -> Image:
    if not items:
        raise BadPayload("a list is empty")
    return ListImage(items)


def _set(members: list[bytes]) -> Image:
    if not members or len(set(members)) != len(members):
        raise BadPayload("a set is empty or has a member twice")
    return SetImage(members)


def _hash(texts: list[bytes]) -> Image:
    fields = texts[0::2]
    if len(texts) % 2 or not fields or len(set(fields)) != len(fields):
        raise BadPayload("a hash is empty or has a field twice or without a value")
    return HashImage(list(zip(fields, texts[1::2], strict=True)))


def _quicklist(reader: Reader) -> Image:
    items: list[bytes] = []
    for _ in range(reader.count(2)):
        container = reader.length()
        if container not in (_PLAIN, _PACKED):
            raise BadPayload(f"a list has a node of the unknown kind {container}")
        items += [reader.string()] if container == _PLAIN else _packed(reader)
    return _list(items)


def _intset(reader: Reader) -> Image:
    data = reader.string()
    width = int.from_bytes(data[:4], "little")
    count = int.from_bytes(data[4:8], "little")
    if width not in (2, 4, 8) or len(data) != 8 + width * count:
        raise BadPayload("a set of integers does not end where it says")
    numbers = [
        int.from_bytes(data[at : at + width], "little", signed=True)
        for at in range(8, len(data), width)
    ]
    return _set([b"%d" % number for number in numbers])


_READERS: dict[int, Callable[[Reader], Image]] = {
    0: _string,
    1: lambda reader: _list(_texts(reader)),
    2: lambda reader: _set(_texts(reader)),
    4: lambda reader: _hash(_texts(reader, each=2)),
    11: _intset,
    16: lambda reader: _hash(_packed(reader)),
    18: _quicklist,
    20: lambda reader: _set(_packed(reader)),
}
