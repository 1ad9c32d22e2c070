"""Values other than streams, and the envelope of all values."""

from __future__ import annotations

import struct

import pytest

from headwater.common.steps import do_all
from headwater.rdb import payload as envelope
from headwater.rdb.errors import BadEnvelope, BadPayload
from headwater.rdb.image import HashImage, Image, ListImage, SetImage
from tests.unit.rdb import old_payloads as old
from tests.unit.rdb.plain_images import read_payload as load
from tests.unit.rdb.plain_images import write_payload as dump


def wrap(value: bytes, *, version: int) -> bytes:
    data = bytearray(value)
    do_all(envelope.wrap(data, version=version))
    return bytes(data)


def unwrap(payload: bytes) -> bytes:
    return payload[: do_all(envelope.unwrap(bytearray(payload), 0, len(payload)))]


def strings(*texts: bytes) -> bytes:
    return b"".join(map(old.string, texts))


def intset(width: int, *numbers: int) -> bytes:
    form = {2: "<h", 4: "<i", 8: "<q"}[width]
    body = b"".join(struct.pack(form, number) for number in numbers)
    return old.string(struct.pack("<II", width, len(numbers)) + body)


READ: dict[str, tuple[bytes, Image]] = {
    "string": (b"\0" + old.string(b"tea"), b"tea"),
    "string of digits": (b"\0\xc0\x0c", b"12"),
    "compressed string": (b"\0" + old.packed(b"ab" * 50), b"ab" * 50),
    "list": (b"\x01\x02" + strings(b"a", b"a"), ListImage([b"a", b"a"])),
    "set": (b"\x02\x02" + strings(b"a", b"b"), SetImage([b"a", b"b"])),
    "hash": (b"\x04\x01" + strings(b"f", b"v"), HashImage([(b"f", b"v")])),
    "set of integers": (b"\x0b" + intset(2, -1, 5), SetImage([b"-1", b"5"])),
    "set of large integers": (b"\x0b" + intset(8, 2**62), SetImage([b"%d" % 2**62])),
    "packed hash": (
        b"\x10" + old.string(old.listpack([b"f", 7])),
        HashImage([(b"f", b"7")]),
    ),
    "quicklist": (
        b"\x12\x02\x02" + old.string(old.listpack([1, b"b"])) + b"\x01" + old.string(b"large"),
        ListImage([b"1", b"b", b"large"]),
    ),
    "packed set": (b"\x14" + old.string(old.listpack([b"x", 3])), SetImage([b"x", b"3"])),
}


@pytest.mark.parametrize(("body", "image"), READ.values(), ids=READ)
def test_a_value_is_read_in_each_of_its_forms(body: bytes, image: Image) -> None:
    assert load(old.sealed(body)) == image


@pytest.mark.parametrize("image", [image for _, image in READ.values()], ids=READ)
def test_a_value_that_was_written_is_read(image: Image) -> None:
    for form in ("7.0", "8.2", "8.8"):
        payload = dump(image, form)
        assert load(payload) == image
        assert payload[-10:-8] == b"\x0a\0"


BROKEN: dict[str, bytes] = {
    "no type": b"",
    "an empty list": b"\x01\0",
    "an empty set": b"\x02\0",
    "an empty hash": b"\x04\0",
    "an empty quicklist": b"\x12\0",
    "a quicklist of an empty node": b"\x12\x01\x02" + old.string(old.listpack([])),
    "a quicklist of an unknown node": b"\x12\x01\x03" + old.string(b"x"),
    "a member twice": b"\x02\x02" + strings(b"a", b"a"),
    "a field twice": b"\x04\x02" + strings(b"f", b"v", b"f", b"w"),
    "a field without a value": b"\x10" + old.string(old.listpack([b"f"])),
    "integers of three bytes": b"\x0b" + old.string(struct.pack("<II", 3, 1) + b"abc"),
    "integers that are missing": b"\x0b" + old.string(struct.pack("<II", 2, 2) + b"ab"),
    "an integer twice": b"\x0b" + intset(2, 5, 5),
    "a short set of integers": b"\x0b" + old.string(b"\x02"),
    "a count of more strings than present": b"\x01\x05" + strings(b"a"),
}
UNKNOWN_TYPES = [3, 5, 6, 7, 8, 9, 10, 12, 13, 14, 17, 22, 23, 24, 25, 28, 99, 255]


@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN)
def test_an_invalid_value_is_refused(body: bytes) -> None:
    with pytest.raises(BadPayload):
        load(old.sealed(body))


@pytest.mark.parametrize("kind", UNKNOWN_TYPES)
def test_an_unsupported_type_is_refused(kind: int) -> None:
    with pytest.raises(BadPayload, match=f"type {kind}"):
        load(old.sealed(bytes([kind, 0, 0, 0])))


@pytest.mark.parametrize("version", [0, 9, 10, 11, 12, 14, 80, 81])
def test_a_version_of_redis_or_valkey_is_read(version: int) -> None:
    assert load(old.sealed(b"\0\x01x", version)) == b"x"


@pytest.mark.parametrize("version", [15, 79, 82, 255, 256, 65535])
def test_a_version_that_is_not_known_is_refused(version: int) -> None:
    with pytest.raises(BadEnvelope, match=str(version)):
        load(old.sealed(b"\0\x01x", version))


def test_a_payload_is_wrapped_as_the_description_says() -> None:
    assert wrap(b"\0\x01x", version=10) == old.sealed(b"\0\x01x", 10)


def test_any_changed_bit_is_detected() -> None:
    # Given a payload
    payload = old.sealed(b"\0\x03tea")

    # Then a change of any bit is an error
    for bit in range(8 * len(payload)):
        changed = bytearray(payload)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(BadEnvelope):
            unwrap(bytes(changed))


@pytest.mark.parametrize("size", range(10))
def test_a_payload_shorter_than_its_envelope_is_refused(size: int) -> None:
    with pytest.raises(BadEnvelope):
        unwrap(bytes(size))
