"""Cases of checkpoints and of entries on disk, by name, in a store whose files are in memory.

Those with a helper process are in test_checkpoint_process.py; tests/README.md lists all.
"""

from __future__ import annotations

import logging

import pytest

from headwater.engine.check import broken_invariants
from headwater.journal.segments.blobs import HEAD_BYTES
from headwater.journal.segments.segments import segment_name
from headwater.testing.node import LocalStore
from headwater.testing.replies import Failure
from tests.segment_scan import scan_segment
from tests.unit.cold import cold_store, fill, finish_reads, made, small_blocks, store_all


@pytest.fixture(autouse=True)
def blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    small_blocks(monkeypatch)


def stored_now(store: LocalStore) -> None:
    """Let the thread compress and store what is queued, without a turn that applies the results."""
    node = store.node
    node.sealer.step()
    node.sealer.work()
    assert node.sealer.done, "nothing was queued"


@pytest.mark.parametrize(
    "command",
    [
        ("XTRIM", "s", "MINID", "40"),
        ("XTRIM", "s", "MAXLEN", "3"),
        ("XDEL", "s", *(f"{ms}-1" for ms in range(1, 120) if ms % 15)),
        ("DEL", "s"),
        ("COPY", "s", "t"),
        ("FLUSHALL",),
    ],
    ids=lambda words: " ".join(words[:3]),
)
def test_what_is_trimmed_between_the_job_and_its_record_stays_trimmed(
    command: tuple[str, ...],
) -> None:
    # Given blocks that were written to a segment, and are not yet reported as stored
    store = made()
    store.node.sealer.threaded = False
    client = store.client()
    fill(client, 200)
    stored_now(store)
    # When the stream changes, and then the results are applied
    client(*command)
    store.node.tick()
    client("SET", "durable", "1")
    # Then the store is as one that has everything in memory, also after a crash and after a checkpoint
    other = made(stream_hot_bytes=1 << 30).client()
    fill(other, 200)
    other(*command)
    expected = [other("XRANGE", key, "-", "+") for key in ("s", "t")]
    assert broken_invariants(store.node.keyspace) == []
    assert [client("XRANGE", key, "-", "+") for key in ("s", "t")] == expected
    store.crash()
    assert broken_invariants(store.node.keyspace) == []
    assert [store.client()("XRANGE", key, "-", "+") for key in ("s", "t")] == expected
    store.node.services.storage.checkpoints.write_now()
    store.crash()
    assert [store.client()("XRANGE", key, "-", "+") for key in ("s", "t")] == expected


@pytest.mark.parametrize("copies", [1, 2])
def test_damage_in_an_id_part_gives_no_wrong_answer(copies: int) -> None:
    # Given a store on disk, with an image, and a blob one copy of whose ids is damaged, or both
    store = cold_store()
    client = store.client()
    expected = client("XRANGE", "s", "-", "+")
    assert isinstance(expected, list)
    store.node.services.storage.checkpoints.write_now()
    store.crash()
    assert store.files is not None
    journal = store.node.journal
    assert journal is not None
    _head, place = next(scan_segment(store.files, segment_name(1), journal.seed))
    for offset in (place.offset, place.second_offset)[:copies]:
        store.files.corrupt(segment_name(1), offset + HEAD_BYTES, b"dam")
    # When the store starts, then everything else is as before
    store.crash()
    client = store.client()
    assert client("XLEN", "s") == len(expected)
    assert client("XRANGE", "s", "250-1", "+") == expected[249:]
    # And the entries of that blob are there, or are an error that names the file
    found = client("XRANGE", "s", "-", "5")
    if isinstance(found, Failure):
        assert copies == 2
        assert b"segment-000001" in found.text
    else:
        assert found == expected[:5]
    assert client("XADD", "s", "9999-1", "a", "b") == b"9999-1"


def test_a_disk_that_is_too_full_for_a_checkpoint_loses_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Given a disk that has space for the journal, and not for an image
    store = made(stream_hot_bytes=1 << 30)
    client = store.client()
    fill(client, 300)
    expected = client("XRANGE", "s", "-", "+")
    assert store.files is not None
    store.files.capacity = store.files.used_bytes() // 2
    # When a checkpoint is requested
    with caplog.at_level(logging.ERROR):
        client("BGREWRITEAOF")
    # Then it fails with the reason, nothing of it is left, and the store goes on
    assert "no image was written" in caplog.text
    assert b"aof_last_bgrewrite_status:err" in info(store)
    assert not any(name.startswith("image") for name in store.files.names())
    assert client("XADD", "s", "301-1", "field", "x") == b"301-1"
    store.crash()
    client = store.client()
    assert client("XRANGE", "s", "-", "300") == expected
    assert client("XLEN", "s") == 301
    # And with more space the next one succeeds
    assert store.files is not None
    store.files.capacity = None
    client("BGREWRITEAOF")
    assert b"aof_last_bgrewrite_status:ok" in info(store)
    assert any(name.startswith("image") for name in store.files.names())
    store.crash()
    assert store.client()("XLEN", "s") == 301


def info(store: LocalStore) -> bytes:
    """Return the section ``persistence`` of INFO."""
    found = store.client()("INFO", "persistence")
    assert isinstance(found, bytes)
    return found


def test_a_rotation_while_idle_repeated_changes_nothing() -> None:
    # Given a store with a checkpoint, and no command since
    store = cold_store()
    client = store.client()
    expected = client("XRANGE", "s", "-", "+")
    store.node.services.storage.checkpoints.write_now()
    assert store.files is not None
    journals = [name for name in store.files.names() if name.startswith("journal")]
    # When more checkpoints are written, with a crash between them
    for _ in range(3):
        store.node.services.storage.checkpoints.write_now()
        store.crash()
    # Then there are no more files, and nothing is lost
    assert [name for name in store.files.names() if name.startswith("journal")] == journals
    assert len([name for name in store.files.names() if name.startswith("image")]) == 1
    client = store.client()
    client.send("XRANGE", "s", "-", "+")
    finish_reads(store)
    assert client.reply() == expected
    store_all(store)
