"""Images and closed files are read exactly as they were written, or they are damaged."""

from __future__ import annotations

import errno

import pytest

from headwater.errors import JournalDamaged, StoreUnusable
from headwater.journal.format import batches
from headwater.journal.format.manifest import ImageEntry
from headwater.journal.format.names import JournalFile
from headwater.journal.format.records import Synced, file_header, read_file_header
from headwater.journal.images import images
from headwater.journal.images.images import ImageWriter, read_image
from headwater.journal.images.rotation import Rotation
from headwater.journal.log.closed import read_closed
from headwater.journal.log.journal import Journal
from headwater.journal.log.recovery import Recovery
from headwater.testing.files import CrashableFiles
from tests.crash.journal_tools import (
    FIRST,
    SEED,
    Written,
    bytes_of,
    fact,
    facts_of,
    open_journal,
    write_turn,
)

NAME = "image-000003"


def rotation(turn: int) -> Rotation:
    """Return the rotation of image 3, at offset 512."""
    return Rotation(3, 8, 5, Synced(7, 2345), turn, 1526569498055, 512)


def image(facts: list[bytes], *, turn: int = 9) -> tuple[CrashableFiles, ImageEntry]:
    files = CrashableFiles()
    writer = ImageWriter(files, rotation(turn), SEED)
    for one in facts:
        writer.write(bytearray(one))
    return files, writer.finish()


def refusal(files: CrashableFiles, entry: ImageEntry) -> str:
    with pytest.raises(JournalDamaged) as caught:
        facts_of(read_image(files, entry, SEED))
    return str(caught.value)


# --- images -------------------------------------------------------------------------------------


def test_an_image_has_what_was_written() -> None:
    facts = [fact("a"), fact("b" * 1000), fact("c")]
    files, entry = image(facts)
    assert facts_of(read_image(files, entry, SEED)) == facts
    assert entry == ImageEntry(3, 9, 1526569498055, len(bytes_of(files)[NAME]), 3, 512)
    (batch,) = read_image(files, entry, SEED)
    assert set(batch.times) == {1526569498055}
    assert {group.turn for group in batch.groups()} == {9}


def test_an_image_of_an_empty_store_has_no_group() -> None:
    files, entry = image([])
    assert facts_of(read_image(files, entry, SEED)) == []


def test_an_image_is_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group that is larger than a piece is read whole."""
    # Given groups of which some are larger than a piece
    facts = [fact(b"%d" % number * (number * 37 % 400)) for number in range(100)]
    files, entry = image(facts)
    monkeypatch.setattr(batches, "PIECE_BYTES", 256)
    # When the image is read
    sizes = []
    found: list[bytes] = []
    for batch in read_image(files, entry, SEED):
        sizes.append(len(batch.data))
        for index in range(len(batch.starts)):
            place = batch.offset(index)
            assert bytes_of(files)[NAME][place + 24 :].startswith(facts[len(found)])
            found.append(bytes(batch.data[batch.starts[index] : batch.ends[index]]))
    # Then nothing is missing, and no piece is larger than a piece or a group
    assert found == facts
    assert max(sizes) <= 24 + max(map(len, facts))


def test_a_length_that_runs_past_the_end_is_damage_and_the_end_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Given an image of many pieces, with a group that claims more than the file has
    files, entry = image([fact("x" * 100)] * 20)
    monkeypatch.setattr(batches, "PIECE_BYTES", 256)
    files.corrupt(NAME, 64, (1 << 20).to_bytes(4, "little"))
    # Then the error names the end of the groups, not that of a piece
    end = entry.size - images.END_GROUP_BYTES
    assert (
        f"damaged at offset 64: found a record of length {1 << 20}, which runs past the end of the file at {end}"
        in refusal(files, entry)
    )


def test_batches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    files, entry = image([fact("x")] * (batches.BATCH_GROUPS + 5))
    assert [len(batch.starts) for batch in read_image(files, entry, SEED)] == [
        batches.BATCH_GROUPS,
        5,
    ]


def test_every_truncation_of_an_image_is_damage() -> None:
    files, entry = image([fact("a"), fact("b" * 50)])
    for size in range(entry.size - 1, -1, -1):
        files.cut(NAME, size)
        assert f"memory:/{NAME} is damaged at offset " in refusal(files, entry)


def test_every_flipped_bit_of_an_image_is_damage() -> None:
    files, entry = image([fact("a"), fact("b" * 50)])
    content = bytes_of(files)[NAME]
    for bit in range(8 * len(content)):
        files.corrupt(NAME, bit // 8, bytes([content[bit // 8] ^ 1 << bit % 8]))
        assert "is damaged at offset" in refusal(files, entry)
        files.corrupt(NAME, bit // 8, content[bit // 8 : bit // 8 + 1])


def test_bytes_after_the_end_of_an_image_are_damage() -> None:
    files, entry = image([fact("a")])
    files.corrupt(NAME, entry.size, b"\0")
    assert f"at offset {entry.size}: found bytes after the end" in refusal(files, entry)


@pytest.mark.parametrize(
    "other",
    [
        {"number": 3, "groups": 1},
        {"turn": 8},
        {"size": 64 + 41},
        {"size": 10},
    ],
)
def test_an_image_that_manifest_does_not_describe_is_damage(other: dict[str, int]) -> None:
    files, entry = image([fact("a"), fact("b")])
    assert "is damaged at offset" in refusal(files, entry._replace(**other))


def test_an_image_of_another_number_or_store_is_damage() -> None:
    files, entry = image([fact("a")])
    with pytest.raises(JournalDamaged, match="or of another store"):
        facts_of(read_image(files, entry, SEED + 1))
    files.rename(NAME, "image-000004")
    assert "the header of image-000003" in refusal(files, entry._replace(number=4))
    assert "no file of this name" in refusal(files, entry)


def test_groups_of_an_image_are_not_valid_in_another() -> None:
    files, entry = image([fact("a"), fact("b")])
    swapped = bytearray(bytes_of(files)[NAME])
    swapped[64:90], swapped[90:116] = swapped[90:116], swapped[64:90]
    files.corrupt(NAME, 0, bytes(swapped))
    assert "at offset 64: found a record with checksum" in refusal(files, entry)


def test_an_image_is_not_a_journal_file_nor_the_reverse() -> None:
    files, entry = image([fact("a")])
    assert read_file_header(files.content(NAME).data) is None
    files.corrupt(NAME, 0, file_header(3, 4096, SEED))
    assert "no header of an image" in refusal(files, entry)


def test_a_later_format_of_images_requires_a_later_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as later:
        later.setattr(images, "IMAGE_FORMAT", 2)
        files, entry = image([fact("a")])
    with pytest.raises(StoreUnusable, match="has format 2; this version"):
        facts_of(read_image(files, entry, SEED))


def test_a_full_disk_leaves_no_image() -> None:
    # Given a disk that fills up while an image is written
    files = CrashableFiles(capacity=200)
    writer = ImageWriter(files, rotation(9), SEED)
    with pytest.raises(OSError, match="No space left") as caught:
        writer.write(bytearray(fact("x" * 300)))
    assert caught.value.errno == errno.ENOSPC
    # When it is abandoned
    writer.abandon()
    # Then nothing of it is left
    assert files.names() == []


# --- closed files -------------------------------------------------------------------------------


def closed(journal: Journal, first: int, end: Synced) -> list[bytes]:
    return facts_of(read_closed(journal.files, first, end, SEED, 0))


def test_closed_files_have_what_was_written_before_the_rotation() -> None:
    # Given a journal of several files that was rotated, and continued
    written = Written(40, file_bytes=512)
    rotation = written.journal.rotate()
    write_turn(written.journal, "later", turn=41)
    # Then its closed files have the turns before
    assert rotation.end.number > 2
    assert closed(written.journal, rotation.closed, rotation.end) == written.facts
    assert rotation.turn == 40


def test_closed_files_must_end_where_the_rotation_ended() -> None:
    written = Written(40, file_bytes=512)
    end = written.journal.rotate().end
    for offset in (end.offset - 1, end.offset + 1, end.offset + 4000):
        with pytest.raises(JournalDamaged, match="is damaged at offset"):
            closed(written.journal, 1, Synced(end.number, offset))
    with pytest.raises(JournalDamaged, match="journal-000001 is damaged"):
        closed(written.journal, 1, Synced(1, end.offset))


def test_every_flipped_bit_of_a_closed_file_is_damage_or_unused() -> None:
    written = Written(10, file_bytes=512)
    end = written.journal.rotate().end
    for name in written.names()[: end.number]:
        content = bytes_of(written.files)[name]
        for offset in range(len(content)):
            written.files.corrupt(name, offset, bytes([content[offset] ^ 4]))
            try:
                assert closed(written.journal, 1, end) == written.facts
            except JournalDamaged as error:
                assert name in str(error)  # noqa: PT017
            else:
                assert content[offset:].rstrip(b"\0") == b""
            written.files.corrupt(name, offset, content[offset : offset + 1])


def test_a_closed_file_that_is_missing_is_named() -> None:
    written = Written(40, file_bytes=512)
    end = written.journal.rotate().end
    written.files.remove("journal-000002")
    with pytest.raises(
        JournalDamaged, match="journal-000002 is damaged at offset 0: found no file"
    ):
        closed(written.journal, 1, end)


def test_a_closed_file_of_format_1_is_read() -> None:
    files = CrashableFiles()
    files.create(FIRST, 512)
    files.corrupt(FIRST, 0, file_header(1, 512, SEED, version=1))
    journal, _ = open_journal(files, file_bytes=512)
    write_turn(journal, "old", turn=1)
    assert Recovery(files)._found[0] == JournalFile(1, 512, 1)
    end = journal.rotate().end
    assert closed(journal, 1, end) == [fact("old")]
