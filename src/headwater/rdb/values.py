"""Values of every type: the meaning of type bytes, and the choice among several forms.

    0 string    1 list  2 set  4 hash        lengths and strings, one after the other
    18 list     quicklist: listpacks, and plain strings for large items
    11 set      intset: integers of one width
    20 set, 16 hash                          one listpack
    15, 19, 21, 26, 27 stream                streams.py

Headwater writes 0, 1, 2 and 4, which every server reads and converts to its preferred form, and the type of
stream that was requested. It reads the forms of these values that Redis 7.0 and later, and Valkey, write, and
streams of earlier versions: 5.0 to 6.2 wrote small lists, sets and hashes in forms that are obsolete. Hashes
with expiring fields (22 to 25), sorted sets and values of modules are not supported.

Source: Redis, rdb.h and rdb.c, intset.c.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headwater.common.steps import Steps
from headwater.rdb import streams
from headwater.rdb.errors import BadPayload
from headwater.rdb.image import HashImage, Image, ListImage, SetImage, StreamImage
from headwater.rdb.lengths import ByteReader, put_length, put_string
from headwater.rdb.listpack import text
from headwater.rdb.payload import REDIS_NEWEST, unwrap, wrap

_PLAIN, _PACKED = 1, 2
"""The kinds of nodes of a quicklist."""

_LISTS_AND_HASHES = 10
"""The RDB version of Redis 7.0, for all values but streams. Redis 7.0 and later read the types written here."""

_TEXTS_AT_ONCE = 1024
"""Maximum number of strings of a list, a set or a hash that are read or written in one step."""

_Read = Callable[[ByteReader], Steps[Image]]

STREAM_FORMS = {
    "7.0": (streams.COUNTED, 10),
    "8.2": (streams.ACTIVE, 11),
    "8.8": (streams.RELEASED, REDIS_NEWEST),
}
"""``dump-format`` → stream type, and the RDB version that introduced the type. Redis 7.2 introduced the type of
8.2, with RDB version 11, which Valkey reads. Valkey does not read 12, the RDB version of Redis 8.2."""


def load(data: bytearray, start: int, end: int) -> Steps[Image]:
    """Return the value in the payload of DUMP from ``start`` to ``end``-1 of ``data``.

    >>> from headwater.common.steps import do_all
    >>> payload = do_all(dump(b"tea", "8.8"))
    >>> do_all(load(payload, 0, len(payload)))
    b'tea'

    Raises `BadEnvelope` and `BadPayload`, nothing else. Bytes after the value are ignored, as in Redis.
    """
    behind = yield from unwrap(data, start, end)
    reader = ByteReader(data, start, behind)
    kind = reader.take(1)[0]
    if kind in streams.TYPES:
        return (yield from streams.read(kind, reader))
    if kind not in _READERS:
        raise BadPayload(f"values of type {kind} are not supported")
    return (yield from _READERS[kind](reader))


def dump(image: Image, form: str) -> Steps[bytearray]:
    """Return a payload of DUMP, with a stream in one of `STREAM_FORMS`."""
    out = bytearray()
    version = _LISTS_AND_HASHES
    if isinstance(image, StreamImage):
        kind, version = STREAM_FORMS[form]
        out.append(kind)
        yield from streams.write(kind, image, out)
    elif isinstance(image, bytes):
        out.append(0)
        put_string(out, image)
    elif isinstance(image, HashImage):
        out.append(4)
        put_length(out, len(image.pairs))
        yield from _put_texts(out, (text for pair in image.pairs for text in pair))
    else:
        out.append(1 if isinstance(image, ListImage) else 2)
        put_length(out, len(image[0]))
        yield from _put_texts(out, image[0])
    yield from wrap(out, version=version)
    return out


def _put_texts(out: bytearray, texts: Iterable[bytes]) -> Steps[None]:
    for number, one in enumerate(texts, 1):
        put_string(out, one)
        if number % _TEXTS_AT_ONCE == 0:
            yield


def _string(reader: ByteReader) -> Steps[Image]:
    yield
    return reader.string()


def _texts(reader: ByteReader, each: int = 1) -> Steps[list[bytes]]:
    """Read a number of items, then their strings, ``each`` strings per item."""
    found: list[bytes] = []
    for number in range(1, each * reader.count(each) + 1):
        found.append(reader.string())
        if number % _TEXTS_AT_ONCE == 0:
            yield
    return found


def _packed(reader: ByteReader) -> list[bytes]:
    return [text(element) for element in reader.packed()]


def _list(items: list[bytes]) -> Image:
    if not items:
        raise BadPayload("a list is empty")
    return ListImage(items)


def _set(members: list[bytes]) -> Image:
    if not members or len(set(members)) != len(members):
        raise BadPayload("a set is empty or has a duplicate member")
    return SetImage(members)


def _hash(texts: list[bytes]) -> Image:
    fields = texts[0::2]
    if len(texts) % 2 or not fields or len(set(fields)) != len(fields):
        raise BadPayload("a hash is empty, has a duplicate field, or a field without a value")
    return HashImage(list(zip(fields, texts[1::2], strict=True)))


def _quicklist(reader: ByteReader) -> Steps[Image]:
    items: list[bytes] = []
    for _ in range(reader.count(2)):
        container = reader.length()
        if container not in (_PLAIN, _PACKED):
            raise BadPayload(f"a list has a node of the unknown kind {container}")
        items += [reader.string()] if container == _PLAIN else _packed(reader)
        yield
    return _list(items)


def _intset(reader: ByteReader) -> Steps[Image]:
    data = reader.string()
    width = int.from_bytes(data[:4], "little")
    count = int.from_bytes(data[4:8], "little")
    if width not in (2, 4, 8) or len(data) != 8 + width * count:
        raise BadPayload("a set of integers does not end where its header says")
    yield
    numbers = [
        int.from_bytes(data[at : at + width], "little", signed=True)
        for at in range(8, len(data), width)
    ]
    return _set([b"%d" % number for number in numbers])


def _of_texts(make: Callable[[list[bytes]], Image], each: int = 1) -> _Read:
    def read(reader: ByteReader) -> Steps[Image]:
        return make((yield from _texts(reader, each)))

    return read


def _of_listpack(make: Callable[[list[bytes]], Image]) -> _Read:
    def read(reader: ByteReader) -> Steps[Image]:
        yield
        return make(_packed(reader))

    return read


_READERS: dict[int, _Read] = {
    0: _string,
    1: _of_texts(_list),
    2: _of_texts(_set),
    4: _of_texts(_hash, each=2),
    11: _intset,
    16: _of_listpack(_hash),
    18: _quicklist,
    20: _of_listpack(_set),
}
