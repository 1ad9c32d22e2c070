"""MANIFEST says which files are the store. A flaw in it, or a file that it names and that is missing, is
damage."""

from __future__ import annotations

import errno
import re

import pytest

from headwater.errors import JournalDamaged, StoreUnusable
from headwater.journal.format.manifest import (
    MOST_LEFT,
    ImageEntry,
    Left,
    StoreHistory,
    StoreManifest,
    read_manifest,
)
from headwater.journal.format.records import Synced
from headwater.journal.images.catalog import Catalog
from headwater.testing.files import CrashableFiles
from tests.crash.journal_tools import (
    FIRST,
    MANIFEST,
    SECOND,
    SEED,
    Written,
    bytes_of,
    copied,
    fact,
    facts_in,
    place,
    refused,
    write_turn,
)

ENTRY = ImageEntry(3, 120, 1526569498055, 4096, 7, 8192)
FORMER = (Left("1a" * 20, 2048), Left("2b" * 20, 2048))
PLAIN = StoreManifest(SEED, None, 1, 2, Synced(1, 105), 1)
WITH_IMAGE = StoreManifest(
    SEED, ENTRY, 8, 10, Synced(9, 2345), 4, history=StoreHistory("7f" * 20, FORMER)
)
OLD = """format 1
seed 00005eed
image 3
image_turn 120
image_now_ms 1526569498055
image_size 4096
image_groups 7
first 8
last 10
floor 9 2345
next_image 4
next_segment 1
"""
"""The lines of a MANIFEST of format 1."""


def directory(text: bytes) -> CrashableFiles:
    """Return a directory that contains only this MANIFEST."""
    files = CrashableFiles()
    files.create(MANIFEST, 0)
    files.corrupt(MANIFEST, 0, text)
    return files


def signed(body: str) -> bytes:
    """Return a MANIFEST with these lines, as a user corrects it."""
    return (body + "crc32c edited\n").encode()


# --- the text -----------------------------------------------------------------------------------


@pytest.mark.parametrize("manifest", [PLAIN, WITH_IMAGE])
def test_what_is_written_is_read(manifest: StoreManifest) -> None:
    assert read_manifest(directory(manifest.text())) == manifest


def test_a_directory_without_manifest_has_none() -> None:
    assert read_manifest(CrashableFiles()) is None


@pytest.mark.parametrize("manifest", [PLAIN, WITH_IMAGE])
def test_every_flipped_bit_is_damage(manifest: StoreManifest) -> None:
    text = manifest.text()
    for bit in range(8 * len(text)):
        flipped = bytearray(text)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(JournalDamaged, match=r"MANIFEST is damaged at line \d+: found "):
            read_manifest(directory(bytes(flipped)))


@pytest.mark.parametrize("manifest", [PLAIN, WITH_IMAGE])
def test_every_truncation_is_damage(manifest: StoreManifest) -> None:
    text = manifest.text()
    for size in range(len(text)):
        with pytest.raises(JournalDamaged, match="Nothing was changed"):
            read_manifest(directory(text[:size]))


@pytest.mark.parametrize(
    ("old", "new", "line", "found"),
    [
        ("last 10", "last 6", 13, "journal files from 8 to 6"),
        ("first 8", "first 08", 12, "'first 08' instead of the field first"),
        ("first 8\n", "", 12, "'last 10' instead of the field first"),
        ("seed 00005eed", "seed 5eed", 2, "'seed 5eed' instead of the field seed"),
        ("next_image 4", "next_image 3", 15, "next_image 3, which is not after every image"),
        ("next_segment 1", "next_segment 1\nmore 1", 17, "'more 1' after the last field"),
        ("image 3", "image 0", 6, "an image without a number"),
        ("history 7f", "history 7", 3, f"'history 7{'7f' * 19}' instead of the field history"),
        (
            "2048\nleft 2b",
            "2049\nleft 2b",
            5,
            "a former history that was left before an earlier one",
        ),
    ],
)
def test_a_line_that_was_corrected_wrongly_is_named(
    old: str, new: str, line: int, found: str
) -> None:
    body = WITH_IMAGE.text().decode().rpartition("crc32c")[0]
    with pytest.raises(JournalDamaged) as caught:
        read_manifest(directory(signed(body.replace(old, new))))
    assert f"MANIFEST is damaged at line {line}: found {found}" in str(caught.value)


def test_a_line_can_be_corrected_by_hand() -> None:
    body = WITH_IMAGE.text().decode().rpartition("crc32c")[0]
    found = read_manifest(directory(signed(body.replace("last 10", "last 9"))))
    assert found == WITH_IMAGE._replace(last=9)


def test_a_manifest_of_format_1_begins_without_a_history_at_offset_0() -> None:
    found = read_manifest(directory(signed(OLD)))
    assert found == WITH_IMAGE._replace(image=ENTRY._replace(offset=0), history=None)


def test_a_store_remembers_its_last_histories() -> None:
    # Given a store that left many histories
    history = StoreHistory.new()
    for offset in range(100):
        history = history.leave(offset)
    # Then its MANIFEST names the last ones, and can be read
    manifest = PLAIN._replace(history=history)
    assert [one.offset for one in history.left] == list(range(100 - MOST_LEFT, 100))
    assert read_manifest(directory(manifest.text())) == manifest
    # And one with more is refused before it is used
    body = manifest.text().decode().rpartition("crc32c")[0]
    more = body.replace("image none", f"left {'0' * 40} 100\nimage none")
    with pytest.raises(JournalDamaged, match="more than 16 former histories"):
        read_manifest(directory(signed(more)))


def test_a_file_that_is_too_large_is_refused_without_being_parsed() -> None:
    with pytest.raises(JournalDamaged, match="more than 4096 bytes"):
        read_manifest(directory(b"format 1\n" * 100_000))


def test_a_later_format_requires_a_later_version() -> None:
    with pytest.raises(StoreUnusable, match=r"format 3: it was written by a later version"):
        read_manifest(directory(signed("format 3\nand something new\n")))


# --- what it names ------------------------------------------------------------------------------


def test_a_removed_newest_file_is_damage() -> None:
    written = Written(3)
    written.files.remove(SECOND)
    expected = f"memory:/{SECOND} is missing, although MANIFEST names it"
    assert refused(written.files).startswith(expected)


def test_an_older_copy_of_the_newest_file_is_damage_after_a_clean_stop() -> None:
    # Given a copy of the newest file, and a journal that was written further and stopped
    written = Written(3)
    older, (name, end) = bytes_of(written.files)[FIRST], written.ends[-1]
    write_turn(written.journal, "later", turn=4)
    written.journal.close()
    stopped = written.journal._writer.end
    # When the copy is put back
    written.files.corrupt(FIRST, 0, older)
    # Then the start is refused
    text = refused(written.files)
    assert place(text) == (name, end)
    assert (
        f"although MANIFEST says that records were durable up to offset {stopped} of {FIRST}"
        in text
    )


def test_an_older_copy_of_an_earlier_newest_file_is_damage_after_a_start() -> None:
    """A start makes everything durable that it found, and says so."""
    written = Written(3)
    older = bytes_of(written.files)[FIRST]
    write_turn(written.journal, "later", turn=4)
    written.open()
    written.files.corrupt(FIRST, 0, older)
    written.files._locked = False
    assert "although MANIFEST says" in refused(written.files)


def test_an_image_that_is_missing_is_damage() -> None:
    files = directory(WITH_IMAGE.text())
    with pytest.raises(JournalDamaged, match="image-000003 is missing, although MANIFEST names it"):
        Catalog(files)


def test_a_missing_manifest_is_damage_where_there_is_an_image() -> None:
    files = CrashableFiles()
    files.create("image-000003", 10)
    with pytest.raises(
        JournalDamaged, match=r"MANIFEST is missing, although .*image-000003 exists"
    ):
        Catalog(files)


def test_the_first_start_of_a_directory_without_manifest_writes_one() -> None:
    # Given a directory of an earlier version
    written = Written(12, file_bytes=512)
    written.files.remove(MANIFEST)
    # When it is opened
    _journal, facts = written.open()
    # Then its files are named
    assert facts == written.facts
    manifest = read_manifest(written.files)
    assert manifest is not None
    assert (manifest.seed, manifest.image, manifest.first) == (SEED, None, 1)
    assert manifest.last == len(written.names())


def test_files_after_the_last_that_is_named_are_read() -> None:
    """An earlier version adds files and does not know MANIFEST."""
    written = Written(3, file_bytes=512)
    older = bytes_of(written.files)[MANIFEST]
    for turn in range(4, 30):
        write_turn(written.journal, f"turn {turn}", turn=turn)
        written.facts.append(fact(f"turn {turn}"))
    written.files.cut(MANIFEST, 0)
    written.files.corrupt(MANIFEST, 0, older)
    assert written.open()[1] == written.facts


# --- replacing it -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "passes"), [("create", 1), ("write", 3), ("sync", 2), ("rename", 1)]
)
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_file_that_manifest_cannot_name_is_not_used(
    operation: str, passes: int, number: int
) -> None:
    """Failing to replace MANIFEST is a refusal, as failing to create the file is."""
    # Given a journal whose next file cannot be named
    written = Written(1, file_bytes=512)
    journal, files = written.journal, written.files
    files.fail(operation, error=number, passes=passes)
    write_turn(journal, "x" * 320, turn=2)
    # Then the journal continues, and the file after the next does not exist
    assert any("MANIFEST" in line and "fails" in line for line in files.transcript)
    assert journal.statistics().refusal is not None
    assert [name for name in written.names() if name > SECOND] == []
    # And it is created when it is needed
    write_turn(journal, "y" * 320, turn=3)
    assert journal.failure is None
    manifest = read_manifest(files)
    assert manifest is not None
    assert manifest.last >= journal._writer.number
    assert len(facts_in(files)[0]) == 3


def test_after_a_failed_fsync_of_the_directory_manifest_is_not_replaced_again() -> None:
    # Given a MANIFEST whose new name may not be durable
    files = Written(3).files
    catalog = Catalog(files)
    assert catalog.manifest is not None
    files.fail("sync_directory")
    with pytest.raises(OSError, match="Input/output"):
        catalog.replace(catalog.manifest)
    before = len(files.transcript)
    # Then every later replacement is refused, and nothing is done
    with pytest.raises(OSError, match="until a restart"):
        catalog.replace(catalog.manifest)
    assert len(files.transcript) == before


def test_a_full_disk_does_not_prevent_a_clean_stop() -> None:
    written = Written(3)
    written.files.capacity = written.files.used_bytes()
    written.journal.close()
    assert facts_in(written.files)[0] == written.facts


def test_manifest_is_readable_text() -> None:
    text = bytes(copied(Written(3).files).content(MANIFEST).data).decode()
    assert re.fullmatch(r"(?:[a-z0-9_]+(?: [a-z0-9]+)+\n)+", text)
