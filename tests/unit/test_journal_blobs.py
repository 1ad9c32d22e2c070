"""Every part of a blob is checked, and damage of one part hides no other."""

from __future__ import annotations

import pytest

from headwater.common.limits import MAX_BLOB_IDS_BYTES, MAX_RECORD_GROUP_BYTES
from headwater.engine.bodies.blobs import CHECKSUM_BYTES, BlobPlace
from headwater.journal.segments import blobs
from headwater.journal.segments.blobs import (
    FIRST,
    SECOND,
    BlobDamaged,
    check_body,
    decode_ids,
    encode_blob,
    find_head,
    head_bytes,
)
from headwater.journal.segments.segment_reader import SegmentReader
from headwater.journal.segments.segments import segment_name
from headwater.testing.files import CrashableFiles
from tests.blobs import SEED, parts_of, writer_of
from tests.segment_scan import scan_segment

NAME = segment_name(1)


def written(count: int = 1, *, body_bytes: int = 40) -> tuple[CrashableFiles, list[BlobPlace]]:
    """Return a directory whose segment 1 has blobs 0 to ``count``-1, and their places."""
    files = CrashableFiles()
    writer = writer_of(files, segment_bytes=4096)
    places = [writer.append(*parts_of(number, body_bytes=body_bytes)) for number in range(count)]
    writer.sync()
    return files, places


def flip(files: CrashableFiles, bit: int) -> None:
    """Change one bit of segment 1."""
    (byte,) = files.part(NAME, bit // 8, 1)
    files.corrupt(NAME, bit // 8, bytes([byte ^ 1 << bit % 8]))


@pytest.mark.parametrize("body_bytes", [0, 1, 63, 5000])
@pytest.mark.parametrize("ids", [b"", b"i", bytes(300)])
def test_what_was_encoded_is_decoded(ids: bytes, body_bytes: int) -> None:
    # Given a blob at some offset
    head, _ids, body = parts_of(9, body_bytes=body_bytes)
    place = BlobPlace(3, 1000, head_bytes(ids), body_bytes)

    # When it is encoded
    data = b"".join(encode_blob(head, ids, body, segment=3, offset=1000, seed=SEED))

    # Then it has the size of its place, and each part is found there
    assert len(data) == place.size
    first = data[: place.head_bytes]
    second = data[place.second_offset - 1000 :]
    found = data[place.body_offset - 1000 : place.second_offset - 1000]
    assert decode_ids(first, place, seed=SEED) == (head, ids)
    assert decode_ids(second, place, seed=SEED, copy=SECOND) == (head, ids)
    assert check_body(found, place, seed=SEED) == body


def test_every_flipped_bit_is_found_and_confined_to_its_part() -> None:
    # Given a segment of three blobs
    files, places = written(3)
    place = places[1]
    head, ids, body = parts_of(1)
    reader = SegmentReader(files, SEED)

    for bit in range(8 * place.offset, 8 * place.end):
        # When any bit of the second one flips
        flip(files, bit)

        # Then its ids are still read from the other copy
        assert reader.head_and_ids(place) == (head, ids)
        # And only a flip in the body or its checksum is damage of the body
        if place.body_offset <= bit // 8 < place.second_offset:
            with pytest.raises(BlobDamaged):
                reader.body(place)
            assert reader.cached_body(place) is None
        else:
            assert reader.body(place) == body
        # And a search finds all three blobs
        assert [found for _head, found in scan_segment(files, NAME, SEED)] == places
        flip(files, bit)


def test_damage_of_both_copies_of_the_ids_leaves_the_body() -> None:
    # Given a blob, both copies of whose ids are damaged
    files, (place,) = written()
    files.corrupt(NAME, place.offset + 70, b"\xff\xff\xff")
    files.corrupt(NAME, place.second_offset + 10, b"\xff\xff\xff")
    reader = SegmentReader(files, SEED)

    # When they are read
    # Then the error names the file and both places
    with pytest.raises(BlobDamaged, match=rf"{NAME}.*{place.offset}.*{place.second_offset}"):
        reader.ids(place)
    # And the body is still readable
    assert reader.body(place) == parts_of(0)[2]


def test_the_error_of_a_damaged_body_names_file_offset_stream_and_ids() -> None:
    # Given a blob with a damaged body
    files, places = written(6)
    place = places[5]
    files.corrupt(NAME, place.body_offset, bytes(3))

    # When it is read
    with pytest.raises(BlobDamaged) as caught:
        SegmentReader(files, SEED).body(place)

    # Then the error says where it is and which entries are lost
    text = str(caught.value)
    assert files.path(NAME) in text
    assert f"offset {place.body_offset}" in text
    assert "8 entries from 5000-1 to 5999-18446744073709551615 of stream number 5" in text


def test_the_error_of_a_blob_without_any_valid_part_says_so() -> None:
    files, (place,) = written()
    files.corrupt(NAME, place.offset, bytes(place.size))
    with pytest.raises(BlobDamaged, match="unknown stream"):
        SegmentReader(files, SEED).body(place)


def test_a_truncated_file_is_damage_of_what_is_missing_only() -> None:
    # Given a segment of two blobs
    files, places = written(2)
    data = files.part(NAME, 0, places[1].end)

    for size in range(len(data)):
        # When it is cut at any byte
        cut = CrashableFiles()
        cut.create(NAME, size)
        cut.write(NAME, 0, data[:size])
        reader = SegmentReader(cut, SEED)

        for number, place in enumerate(places):
            head, ids, body = parts_of(number)
            # Then ids are readable if the first copy is there
            if size >= place.body_offset:
                assert reader.head_and_ids(place) == (head, ids)
            else:
                with pytest.raises(BlobDamaged):
                    reader.ids(place)
            # And the body is readable if it and its checksum are there
            if size >= place.second_offset:
                assert reader.body(place) == body
            else:
                with pytest.raises(BlobDamaged):
                    reader.body(place)


def test_a_blob_is_not_valid_at_another_place() -> None:
    # Given two blobs of equal size
    files, (first, second) = written(2)
    _head, ids, body = parts_of(0)
    second = second._replace(head_bytes=first.head_bytes)
    data = files.part(NAME, first.offset, first.size)

    # When the first is copied over the second, and to the same offset of another segment and another store
    files.corrupt(NAME, second.offset, data)
    other = first._replace(segment=2)
    files.create(segment_name(2), 4096)
    files.write(segment_name(2), first.offset, data)

    # Then it is valid in its own place only
    reader = SegmentReader(files, SEED)
    assert (reader.ids(first), reader.body(first)) == (ids, body)
    for place, seed in ((second, SEED), (other, SEED), (first, SEED + 1)):
        reader = SegmentReader(files, seed)
        with pytest.raises(BlobDamaged):
            reader.ids(place)
        with pytest.raises(BlobDamaged):
            reader.body(place)


def test_a_place_with_another_length_is_refused() -> None:
    files, (place, _next) = written(2)
    reader = SegmentReader(files, SEED)
    for change in (-1, 1, 2**31):
        wrong = place._replace(body_bytes=place.body_bytes + change)
        with pytest.raises(BlobDamaged):
            reader.body(wrong)
        with pytest.raises(BlobDamaged):
            reader.ids(wrong)


def test_zeros_are_no_blob() -> None:
    assert find_head(bytes(64), 64, segment=1, seed=SEED) is None


@pytest.mark.parametrize(
    ("raw", "body", "ids", "valid"),
    [
        (MAX_RECORD_GROUP_BYTES, MAX_RECORD_GROUP_BYTES, MAX_BLOB_IDS_BYTES, True),
        (MAX_RECORD_GROUP_BYTES + 1, 0, 0, False),
        (0, MAX_RECORD_GROUP_BYTES + 1, 0, False),
        (0, 0, MAX_BLOB_IDS_BYTES + 1, False),
    ],
)
def test_a_head_with_a_length_above_a_limit_is_refused(
    *, raw: int, body: int, ids: int, valid: bool
) -> None:
    # Given a head with these lengths and a checksum that fits
    fields = blobs._HEAD.pack(blobs.MARK, 1, 0, 1, 7, 1, raw, body, ids, 1, 0, 1, 0)
    checksum = blobs._checksum(fields, 64, blobs.blob_key(1), SEED)

    # When it is read
    found = find_head(fields + checksum.to_bytes(4, "little"), 64, segment=1, seed=SEED)

    # Then it is refused if a length is above its limit
    assert (found is not None) is valid


def test_a_part_of_the_wrong_length_is_refused() -> None:
    files, (place,) = written()
    data = files.part(NAME, place.offset, place.head_bytes + 1)
    with pytest.raises(ValueError, match="bytes"):
        decode_ids(data, place, seed=SEED, copy=FIRST)
    with pytest.raises(ValueError, match="bytes"):
        check_body(bytes(place.body_bytes + CHECKSUM_BYTES + 1), place, seed=SEED)
