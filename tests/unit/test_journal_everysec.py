"""``appendfsync everysec``, and changing from one policy to another."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from headwater.config.storage import FsyncPolicy
from headwater.errors import NodePoisoned
from headwater.journal.format.batches import groups_of
from headwater.journal.log.flusher import Flusher
from headwater.journal.log.journal import Journal
from headwater.testing.clock import ManualClock
from headwater.testing.files import CrashableFiles
from tests.crash.journal_tools import fact, facts_in, open_journal, write_turn

FILE_BYTES = 1024


def flusher_of(journal: Journal) -> Flusher:
    return journal._flusher


@pytest.fixture
def files() -> CrashableFiles:
    return CrashableFiles()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def everysec(files: CrashableFiles, clock: ManualClock) -> Iterator[Journal]:
    journal = Journal.open(
        files, policy="everysec", file_bytes=FILE_BYTES, clock=clock, flush_interval=1e6
    )
    assert list(groups_of(journal.batches())) == []
    yield journal
    journal.close()


def test_the_thread_makes_turns_durable(files: CrashableFiles) -> None:
    synced = threading.Event()
    journal = Journal.open(files, policy="everysec", file_bytes=FILE_BYTES, flush_interval=0.001)
    assert list(groups_of(journal.batches())) == []

    def watch(line: str) -> None:
        if line == "sync journal-000001":
            synced.set()

    files.on_operation = watch
    write_turn(journal, "one", turn=1)
    assert synced.wait(30)
    journal.close()


def test_a_failed_fsync_of_the_thread_poisons(files: CrashableFiles, everysec: Journal) -> None:
    write_turn(everysec, "one", turn=1)
    files.fail("sync")
    assert not flusher_of(everysec).flush_once()
    with pytest.raises(NodePoisoned, match="Input/output error"):
        everysec.admits(1)
    with pytest.raises(NodePoisoned, match="Input/output error"):
        everysec.commit(bytearray())
    assert everysec.failure is not None
    # And the fsync is not repeated
    files.transcript.clear()
    flusher_of(everysec).wrote(1, 100, 1)
    assert not flusher_of(everysec).flush_once()
    assert files.transcript == []


def test_an_unexpected_exception_in_an_fsync_poisons_as_well(
    files: CrashableFiles, everysec: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given an fsync that fails with another exception than OSError
    write_turn(everysec, "one", turn=1)
    with monkeypatch.context() as patches:
        patches.setattr(files, "sync", lambda name: dict[str, None]()[name])
        assert not flusher_of(everysec).flush_once()
    # Then nothing more is written, and waiting for the flusher ends
    with pytest.raises(NodePoisoned, match="KeyError"):
        everysec.commit(bytearray(b"x"))
    flusher_of(everysec).wait_until_idle()


class SlowSync:
    """Delays the fsync of a flusher's thread until `end`."""

    def __init__(self, files: CrashableFiles, journal: Journal) -> None:
        self.running, self.go = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=flusher_of(journal).flush_once)
        files.on_operation = self._hold

    def _hold(self, line: str) -> None:
        if threading.current_thread() is self.thread and line.startswith("sync"):
            self.running.set()
            assert self.go.wait(30)

    def begin(self) -> None:
        self.thread.start()
        assert self.running.wait(30)

    def end(self) -> None:
        self.go.set()
        self.thread.join()


def test_a_turn_does_not_wait_for_a_running_fsync(
    files: CrashableFiles, everysec: Journal, clock: ManualClock
) -> None:
    write_turn(everysec, "one", turn=1)
    slow = SlowSync(files, everysec)
    slow.begin()
    clock.advance(1.9)
    write_turn(everysec, "two", turn=2)
    assert everysec.statistics().delayed_fsyncs == 0
    slow.end()
    # That fsync does not cover what was written while it ran
    assert flusher_of(everysec).flush_once()


def test_a_turn_waits_for_an_fsync_that_takes_two_seconds(
    files: CrashableFiles, everysec: Journal, clock: ManualClock
) -> None:
    # Given an fsync that has run for two seconds
    write_turn(everysec, "one", turn=1)
    slow = SlowSync(files, everysec)
    slow.begin()
    clock.advance(2)
    # When a turn is committed
    order: list[str] = []

    def commit() -> None:
        write_turn(everysec, "two", turn=2)
        order.append("committed")

    turn = threading.Thread(target=commit)
    turn.start()
    # Then it waits for the end of that fsync, and the delay is counted
    while turn.is_alive() and not flusher_of(everysec).delayed:
        turn.join(0.001)
    assert order == []
    order.append("fsync ends")
    slow.end()
    turn.join()
    assert order == ["fsync ends", "committed"]
    assert everysec.statistics().delayed_fsyncs == 1


def test_a_rotation_waits_for_a_running_fsync(files: CrashableFiles, everysec: Journal) -> None:
    """Otherwise its late success would vouch for the wrong place, and its error would be lost."""
    write_turn(everysec, b"x" * 700, turn=1)
    slow = SlowSync(files, everysec)
    slow.begin()
    turn = threading.Thread(target=lambda: write_turn(everysec, b"y" * 700, turn=2))
    turn.start()
    slow.end()
    turn.join()
    assert facts_in(files)[0] == [fact(b"x" * 700), fact(b"y" * 700)]


def test_an_fsync_that_fails_during_a_rotation_poisons(
    files: CrashableFiles, everysec: Journal
) -> None:
    write_turn(everysec, b"x" * 700, turn=1)
    slow = SlowSync(files, everysec)
    files.fail("sync")
    slow.begin()
    failures = []

    def leave() -> None:
        try:
            write_turn(everysec, b"y" * 700, turn=2)
        except NodePoisoned as error:
            failures.append(error)

    turn = threading.Thread(target=leave)
    turn.start()
    slow.end()
    turn.join()
    assert len(failures) == 1
    assert not any(line.startswith("write journal-000002 ") for line in files.transcript)


@pytest.mark.parametrize("policy", ["always", "everysec", "no"])
def test_the_policy_can_be_changed(files: CrashableFiles, policy: FsyncPolicy) -> None:
    journal, _ = open_journal(files, policy=policy, file_bytes=FILE_BYTES)
    others: list[FsyncPolicy] = ["no", "everysec", "always", "everysec", "always", "no"]
    for turn, other in enumerate(others, start=1):
        write_turn(journal, f"turn {turn}", turn=turn)
        journal.set_policy(other)
        assert journal.policy == other
        for image in files.all_crash_images():
            assert len(facts_in(image)[0]) == turn
    journal.close()


@pytest.mark.parametrize("second", ["no", "everysec"])
def test_a_turn_begun_under_always_is_durable_whatever_the_new_policy(
    files: CrashableFiles, second: FsyncPolicy
) -> None:
    # Given a turn that began under always
    journal, _ = open_journal(files, policy="always", file_bytes=FILE_BYTES)
    # When the policy is changed twice before it is committed
    journal.set_policy("everysec")
    journal.set_policy(second)
    write_turn(journal, "one", turn=1)
    # Then it survives every crash
    for image in files.all_crash_images():
        assert len(facts_in(image)[0]) == 1
    journal.close()


def test_a_change_of_policy_whose_fsync_fails_poisons(files: CrashableFiles) -> None:
    journal, _ = open_journal(files, policy="no", file_bytes=FILE_BYTES)
    write_turn(journal, "one", turn=1)
    files.fail("sync")
    with pytest.raises(NodePoisoned):
        journal.set_policy("always")
