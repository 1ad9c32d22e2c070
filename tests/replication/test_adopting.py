"""A copy of the primary replaces a store as a whole, whenever the process or the machine stops."""

from __future__ import annotations

import pytest

from headwater.journal.format.manifest import StoreManifest
from headwater.journal.log.adopting import CopyRefused, CopyWriter, finish
from headwater.testing.files import CrashableFiles
from tests.crash.journal_tools import Written, open_journal

FILE_BYTES = 512


def source(turns: int = 12) -> tuple[dict[str, bytes], bytes, list[bytes]]:
    """Return the files of another store, its MANIFEST, and its facts."""
    written = Written(turns, file_bytes=FILE_BYTES)
    journal = written.journal
    rotation = journal.rotate()
    manifest = journal.catalog.manifest
    assert isinstance(manifest, StoreManifest)
    files = {}
    for end in journal.catalog.closed:
        name = f"journal-{end.number:06d}"
        files[name] = bytes(journal.files.read(name, end.offset))
    text = manifest._replace(last=rotation.first - 1, floor=journal.catalog.floor).text()
    return files, text, written.facts


def copy_into(files: CrashableFiles) -> list[bytes]:
    """Write a copy of another store, without making it the store. Return its facts."""
    sent, manifest, facts = source()
    writer = CopyWriter(files)
    for name, data in sent.items():
        writer.begin(name, len(data))
        for at in range(0, len(data), 100):
            writer.write(data[at : at + 100])
    writer.complete(manifest)
    return facts


def facts_in(files: CrashableFiles) -> list[bytes]:
    files._locked = False
    return open_journal(files, file_bytes=FILE_BYTES)[1]


def test_a_complete_copy_is_the_store_at_the_next_start() -> None:
    # Given a store with a complete copy of another
    former = Written(5, file_bytes=FILE_BYTES)
    facts = copy_into(former.files)
    # When it starts
    assert facts_in(former.files) == facts != former.facts
    # Then nothing else is left
    assert not [name for name in former.files.names() if name.startswith(("copy-", "ADOPT"))]


def test_an_incomplete_copy_changes_nothing() -> None:
    # Given a store with a part of a copy
    former = Written(5, file_bytes=FILE_BYTES)
    writer = CopyWriter(former.files)
    writer.begin("journal-000001", 400)
    writer.write(bytes(300))
    # When it starts, then it is the former one, and the part is gone
    assert facts_in(former.files) == former.facts
    assert not [name for name in former.files.names() if name.startswith("copy-")]


def test_a_crash_at_any_moment_leaves_the_former_store_or_the_copy() -> None:
    # Given a store that a copy replaces, and the states that a crash before each operation can leave
    former = Written(5, file_bytes=FILE_BYTES)
    images: list[CrashableFiles] = []
    seeds = iter(range(100_000))

    def keep(_line: str) -> None:
        images.extend(former.files.crash_images(seed=next(seeds), count=8))

    former.files.on_operation = keep
    facts = copy_into(former.files)
    former.files._locked = False
    finish(former.files)
    former.files.on_operation = None
    # When it starts on one of them
    found = [facts_in(image) for image in images]
    # Then it has one of the two stores, whole; and once the copy was complete, the copy
    assert len(found) > 100
    assert all(one in (former.facts, facts) for one in found)
    assert former.facts in found
    assert found[-1] == facts


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("../x", 1),
        ("MANIFEST", 1),
        ("headwater.lock", 1),
        ("journal-1", 1),
        ("journal-000001", 1 << 50),
    ],
)
def test_a_copy_may_not_write_other_files(name: str, size: int) -> None:
    files = CrashableFiles(capacity=1 << 20)
    with pytest.raises(CopyRefused, match=name):
        CopyWriter(files).begin(name, size)
    assert files.names() == []


def test_a_copy_with_too_few_or_too_many_bytes_is_refused() -> None:
    files = CrashableFiles()
    writer = CopyWriter(files)
    writer.begin("journal-000001", 10)
    writer.write(bytes(9))
    with pytest.raises(CopyRefused, match="9 of 10 bytes"):
        writer.complete(b"")
    with pytest.raises(CopyRefused, match="more bytes"):
        writer.write(bytes(2))
