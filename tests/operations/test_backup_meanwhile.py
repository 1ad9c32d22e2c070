"""A copy is whole wherever it stops while the store goes on: between any two files, and between any two reads of one.

The store works in `progress`, which a copy calls after each piece and each file: it writes, begins other journal files,
writes images, moves segments, is emptied, killed and started again. What is copied must start, and be the state after
one command since the copy began.
"""

from __future__ import annotations

import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headwater.common.model import StreamID
from headwater.config.config import Config
from headwater.errors import StoreUnusable
from headwater.journal.disk.files import DiskFiles
from headwater.journal.format.records import FILE_HEADER_BYTES
from headwater.journal.log.journal import Journal
from headwater.persistence.backup import back_up, restore_at
from headwater.persistence.checking import check_store
from headwater.persistence.disk_use import streams_on_disk
from headwater.persistence.dumping import dumped_groups, journal_parts
from headwater.persistence.history import entry_history
from headwater.persistence.reading import Progress
from headwater.persistence.replaying import recovered_keyspace
from headwater.server.turn.node import Node
from headwater.testing.clock import ManualClock
from headwater.testing.files import CrashableFiles
from headwater.testing.node import LocalClient
from tests.crash.node_store import (
    HelpedCheckpoint,
    SmallFiles,
    checkpoint_now,
    compact,
    content,
    tiny_segments,
)
from tests.samples import sampled

PIECE_BYTES = 300
FILE_SIZES = (400, 1024, 5000)
"""Of journal files: from one group a file to many pieces a file."""

MOST_STEPS = 40
"""Of one copy: each makes it longer."""

State = dict[bytes, Any]


class Busy(SmallFiles):
    """A store in a directory, and the state after each of its commands with the time."""

    def __init__(self, directory: Path, random: Random) -> None:
        self.directory = directory
        self.random = random
        self.file_bytes = random.choice(FILE_SIZES)
        self.states: list[tuple[int, State]] = []
        self.running: HelpedCheckpoint | None = None
        self.often, self.steps = random.choice((1.0, 0.3, 0.05)), 0
        self.counts = {"moved": 0, "images": 0, "starts": 0}
        config = Config(port=0, journal_retention=1_000)
        super().__init__(clock=ManualClock(), cold=True, files=self._on_disk(), config=config)
        self.note()

    def _on_disk(self) -> Any:
        return DiskFiles(self.directory)

    def _journal(self, files: CrashableFiles) -> Journal:
        policy: Any = self.random.choice(["always", "no"])
        return Journal.open(files, policy=policy, file_bytes=self.file_bytes, clock=self.clock)

    def _open(self) -> Node:
        node = super()._open()
        self.caller: LocalClient | None = None
        return node

    def do(self, *words: bytes | str | int) -> None:
        """Send a command, and note the state after it."""
        if self.caller is None:
            self.caller = self.client()
        self.caller(*words)
        self.note()

    def note(self) -> None:
        self.states.append((self.clock.now_ms(), content(self.node.keyspace)))

    # --- what a store does meanwhile ------------------------------------------------------------

    def write(self) -> None:
        for _ in range(self.random.randint(1, 6)):
            size = self.random.choice((20, 150, 150, 1500))
            self.do("XADD", self.random.choice("st"), "*", "text", "x" * size)
            self.advance(0.003)

    def delete(self) -> None:
        key = self.random.choice("st")
        self.do("XTRIM", key, "MAXLEN", self.random.randint(0, 12))
        self.do("SET", "plain", self.random.randbytes(40))

    def checkpoint(self) -> None:
        """Begin, build or end an image, then move what is left of segments."""
        self.counts["images"] += 1
        if self.running is None and self.random.random() < 0.5:
            checkpoint_now(self)
        elif self.running is None:
            self.running = HelpedCheckpoint(self)
        elif not self.running.is_built:
            self.running.build()
        else:
            self.running.end()
            self.running = None
            self.counts["moved"] += compact(self)

    def empty(self) -> None:
        self.do("FLUSHALL")

    def start_again(self) -> None:
        """Stop cleanly, or be killed, perhaps while a record is written; then start."""
        assert self.files is not None
        self.counts["starts"] += 1
        self.running = None
        last = sorted(self.directory.glob("journal-*"))
        if self.random.random() < 0.3:
            self.node.close()
        else:
            self.files.unlock()
            self.tear(last)
        self._given = self._on_disk()
        self.node = self._open()

    def tear(self, journals: list[Path]) -> None:
        """Write a part of a record after the last one."""
        for path in reversed(journals):
            data = path.read_bytes()
            used = len(data.rstrip(b"\0"))
            if used > FILE_HEADER_BYTES:
                if len(data) > used + 90:
                    with path.open("r+b") as file:
                        file.seek(used + 64)
                        file.write(b"\x50\0\0\0" + self.random.randbytes(20))
                return

    def work(self) -> None:
        """Do some of it, now and then."""
        if self.steps == MOST_STEPS or self.random.random() > self.often:
            return
        self.steps += 1
        steps: list[Callable[[], None]] = [self.write] * 8 + [self.checkpoint] * 4
        steps += [self.delete] * 2 + [self.empty, self.start_again]
        for _ in range(self.random.randint(0, 3)):
            self.random.choice(steps)()

    def rotate_and_checkpoint(self) -> None:
        """Fill more than two journal files, with an image and a compaction between them."""
        for _ in range(2):
            self.do("XADD", "s", "*", "text", "x" * self.file_bytes)
            self.write()
        self.delete()
        checkpoint_now(self)
        self.write()
        self.running = HelpedCheckpoint(self)
        self.write()
        self.running.build()
        self.running.end()
        self.running = None
        self.counts["moved"] += compact(self)
        self.write()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory, if there is one: thousands of small files are synced."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as directory:
        yield Path(directory)


@pytest.fixture
def patches() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patches:
        tiny_segments(patches)
        yield patches


def state_of(directory: Path) -> State:
    """Start with a directory, and return what it has."""
    check = check_store(DiskFiles(directory))
    assert check.damage is None
    assert check.healthy, check
    journal = Journal.open(DiskFiles(directory), policy="no", clock=ManualClock())
    try:
        keyspace = recovered_keyspace(journal)
        return content(keyspace)
    finally:
        journal.close()


def filled(directory: Path, seed: int) -> Busy:
    """A store with some journal files, an image, segments, and a spare file."""
    store = Busy(directory, Random(seed))
    for _ in range(6):
        store.write()
    store.delete()
    checkpoint_now(store)
    for _ in range(3):
        store.write()
    return store


def copied_meanwhile(store: Busy, copy: Path, meanwhile: Callable[[], None]) -> int:
    """Copy the store, which works meanwhile, and compare. Return how often it could work."""
    before, calls = len(store.states) - 1, 0

    def progress(_what: str, _done: int, _total: int) -> None:
        nonlocal calls
        calls += 1
        meanwhile()

    back_up(store.directory, copy, progress, piece_bytes=PIECE_BYTES)
    found = state_of(copy)
    assert found in [state for _ms, state in store.states[before:]]
    return calls


@pytest.mark.slow
@pytest.mark.parametrize(
    "seeds",
    [
        range(1, 2),
        pytest.param(range(2, 2 + sampled(2)), marks=pytest.mark.slice),
    ],
)
@pytest.mark.usefixtures("patches")
def test_a_backup_is_whole_wherever_a_rotation_and_an_image_come_between(
    place: Path, seeds: range
) -> None:
    for one in seeds:
        # Given a store with each kind of file
        store = filled(place / f"store-{one}", one)
        after, calls = 0, 1
        while after < calls:
            # When it begins other files, writes images and moves segments after one of the copy's pieces
            counter = iter(range(10_000))

            def at_place(here: int = after) -> None:
                if next(counter) == here:  # noqa: B023 - called in this turn of the loop
                    store.rotate_and_checkpoint()  # noqa: B023

            calls = copied_meanwhile(store, place / f"copy-{one}-{after}", at_place)
            after += max(1, calls // 25)
        # Then each copy was a state since its beginning
        assert store.counts["moved"] > 0
        assert store.files is not None
        store.files.unlock()


def all_groups(files: DiskFiles, progress: Progress) -> None:
    deque(dumped_groups(files, progress=progress), maxlen=0)


def one_history(files: DiskFiles, progress: Progress) -> None:
    entry_history(files, b"s", StreamID(1, 1), progress=progress)


@pytest.mark.slow
@pytest.mark.parametrize("read", [streams_on_disk, journal_parts, all_groups, one_history])
@pytest.mark.usefixtures("patches")
def test_a_reader_finds_no_damage_wherever_rotations_and_an_image_come_between(
    place: Path, read: Callable[[DiskFiles, Progress], object]
) -> None:
    after = calls = 0
    while after <= calls:
        # Given a store with each kind of file
        store = filled(place / f"store-{after}", 1)
        calls = 0

        def at_place(*_progress: object) -> None:
            # When it fills its file and the spare one, and writes images, between two steps of a reader
            nonlocal calls
            calls += 1
            if calls == after:  # noqa: B023 - called in this turn of the loop
                for size in (1, *[150] * 8):
                    store.do("SET", "k", "x" * size)  # noqa: B023
                store.rotate_and_checkpoint()  # noqa: B023

        # Then that reads what the store had at some time meanwhile
        read(DiskFiles(store.directory), at_place)
        assert store.files is not None
        store.files.unlock()
        after += 1
    assert calls > 5


@pytest.mark.slow
@pytest.mark.parametrize(
    "seeds", [range(100, 110), pytest.param(range(110, 110 + sampled(45)), marks=pytest.mark.slice)]
)
@pytest.mark.usefixtures("patches")
def test_a_backup_is_whole_whatever_the_store_does_between_any_two_pieces(
    place: Path, seeds: range
) -> None:
    starts = images = 0
    for seed in seeds:
        # Given a store
        store = filled(place / f"store-{seed}", seed)
        # When it is copied, and works after each piece
        copied_meanwhile(store, place / f"copy-{seed}", store.work)
        # Then the copy was a state since its beginning
        starts, images = starts + store.counts["starts"], images + store.counts["images"]
        assert store.files is not None
        store.files.unlock()
    assert starts > 0
    assert images > 0


@pytest.mark.parametrize("after", [0, 1, 2])
@pytest.mark.usefixtures("patches")
def test_a_backup_is_whole_if_the_store_is_started_meanwhile(place: Path, after: int) -> None:
    # Given a store that was killed while it wrote the first record of a file
    store = filled(place / "store", 7)
    assert store.files is not None
    store.files.unlock()
    last = max((place / "store").glob("journal-*"))
    with last.open("r+b") as file:
        file.seek(FILE_HEADER_BYTES)
        file.write(store.random.randbytes(100))
    calls = iter(range(10_000))

    def start_and_write() -> None:
        # When it is started during a copy, cuts that off, goes on in the file before, and comes to that file again
        if next(calls) == after:
            store._given = store._on_disk()
            store.node = store._open()
            store.rotate_and_checkpoint()

    # Then the copy is a state since its beginning
    assert copied_meanwhile(store, place / "copy", start_and_write) > after
    store.files.unlock()


@pytest.mark.slow
@pytest.mark.usefixtures("patches")
def test_a_store_that_is_started_again_and_again_is_not_copied(place: Path) -> None:
    store = filled(place / "store", 8)
    with pytest.raises(StoreUnusable, match="was started 10 times while its journal was copied"):
        back_up(store.directory, place / "copy", lambda *_: store.start_again())
    assert not (place / "copy").exists()
    assert store.files is not None
    store.files.unlock()


@pytest.mark.slow
@pytest.mark.parametrize(
    "seeds", [range(500, 508), pytest.param(range(508, 508 + sampled(30)), marks=pytest.mark.slice)]
)
@pytest.mark.usefixtures("patches")
def test_the_state_of_a_moment_is_restored_whatever_the_store_does_meanwhile(
    place: Path, seeds: range
) -> None:
    for seed in seeds:
        # Given a store that keeps what its images replace
        store = filled(place / f"store-{seed}", seed)
        store.advance(1)
        wanted = [*store.states[-20::5], store.states[-1]]
        # When it is restored as it was at a moment, and works after each piece
        for number, (at_ms, _state) in enumerate(wanted):
            copy = place / f"copy-{seed}-{number}"
            work = store.work
            restore_at(
                store.directory,
                copy,
                at_ms,
                lambda *_, work=work: work(),
                piece_bytes=PIECE_BYTES,
            )
            # Then the copy has the state of that moment
            assert state_of(copy) == [state for ms, state in store.states if ms <= at_ms][-1]
        assert store.files is not None
        store.files.unlock()
