"""Every operation of the journal on the disk, in order. A missing fsync fails a test here.

Each expected text has one operation per line.
"""

from __future__ import annotations

from headwater.config.storage import FsyncPolicy
from headwater.journal.log.journal import Journal
from headwater.testing.files import CrashableFiles
from tests.crash.journal_tools import open_journal, write_turn


class Story:
    """A journal in memory. Each method returns the operations that it caused."""

    def __init__(self, *, policy: FsyncPolicy = "always", file_bytes: int = 1024) -> None:
        self.files = CrashableFiles()
        self.policy: FsyncPolicy = policy
        self.file_bytes = file_bytes
        self.journal: Journal
        self.turn = 0

    def start(self) -> str:
        self.journal, _facts = open_journal(
            self.files, policy=self.policy, file_bytes=self.file_bytes
        )
        return self.operations()

    def write(self, *texts: str, sync: bool = True) -> str:
        self.turn += 1
        write_turn(self.journal, *texts, turn=self.turn, sync=sync)
        return self.operations()

    def flush(self) -> str:
        self.journal._flusher.flush_once()
        return self.operations()

    def stop(self) -> str:
        self.journal.close()
        return self.operations()

    def operations(self) -> str:
        lines, self.files.transcript = self.files.transcript, []
        return "\n".join(lines)


MANIFEST = """
    create MANIFEST.new: {0} bytes
    write MANIFEST.new at 0: {0} bytes
    sync MANIFEST.new
    rename MANIFEST.new MANIFEST
    sync directory
"""


def manifest(size: int) -> str:
    """Return the operations that replace MANIFEST by one of ``size`` bytes."""
    return MANIFEST.format(size)


def expect(found: str, text: str) -> None:
    lines = [line.strip() for line in text.strip().splitlines()]
    assert found.splitlines() == [line for line in lines if line], found


def test_the_first_start() -> None:
    expect(
        Story().start(),
        """
        lock
        create journal-000001.new: 1024 bytes
        write journal-000001.new at 0: 64 bytes
        sync journal-000001.new
        rename journal-000001.new journal-000001
        sync directory
        create journal-000002.new: 1024 bytes
        write journal-000002.new at 0: 64 bytes
        sync journal-000002.new
        rename journal-000002.new journal-000002
        sync directory
        """
        + manifest(152),
    )


def test_a_turn_under_always() -> None:
    """41 bytes record how far the last fsync reached; then the groups of the turn follow, in one write."""
    story = Story()
    story.start()
    expect(
        story.write("one", "two"),
        """
        write journal-000001 at 64: 41 bytes
        write journal-000001 at 105: 56 bytes
        sync journal-000001
        """,
    )
    expect(
        story.write("three"),
        """
        write journal-000001 at 161: 41 bytes
        write journal-000001 at 202: 30 bytes
        sync journal-000001
        """,
    )


def test_a_turn_without_facts_does_not_access_the_disk() -> None:
    story = Story()
    story.start()
    story.journal.commit(bytearray())
    expect(story.operations(), "")


def test_turns_under_everysec() -> None:
    story = Story(policy="everysec")
    story.start()
    expect(
        story.write("one"),
        """
        write journal-000001 at 64: 41 bytes
        write journal-000001 at 105: 28 bytes
        """,
    )
    expect(story.write("two"), "write journal-000001 at 133: 28 bytes")
    expect(story.flush(), "sync journal-000001")
    expect(story.flush(), "")
    expect(
        story.write("three"),
        """
        write journal-000001 at 161: 41 bytes
        write journal-000001 at 202: 30 bytes
        """,
    )


def test_turns_under_no() -> None:
    story = Story(policy="no")
    story.start()
    expect(
        story.write("one"),
        """
        write journal-000001 at 64: 41 bytes
        write journal-000001 at 105: 28 bytes
        """,
    )
    expect(story.write("two"), "write journal-000001 at 133: 28 bytes")


def test_seen_times_cause_no_fsync() -> None:
    """They are written, and become durable with the next turn that is fsynced."""
    story = Story()
    story.start()
    expect(
        story.write("seen", sync=False),
        """
        write journal-000001 at 64: 41 bytes
        write journal-000001 at 105: 29 bytes
        """,
    )
    expect(
        story.write("one"),
        """
        write journal-000001 at 134: 28 bytes
        sync journal-000001
        """,
    )
    story = Story(policy="everysec")
    story.start()
    story.write("seen", sync=False)
    expect(story.flush(), "")


def test_a_full_file_is_fsynced_and_followed_by_the_next() -> None:
    """The file after the next is created when the next is begun, after the turn is durable."""
    story = Story(policy="no")
    story.start()
    story.write("x" * 700)
    expect(
        story.write("a" * 40, "b" * 200),
        """
        write journal-000001 at 830: 65 bytes
        sync journal-000001
        write journal-000002 at 64: 41 bytes
        write journal-000002 at 105: 225 bytes
        create journal-000003.new: 1024 bytes
        write journal-000003.new at 0: 64 bytes
        sync journal-000003.new
        rename journal-000003.new journal-000003
        sync directory
        """
        + manifest(154),
    )


def test_a_larger_group_gets_a_file_that_is_large_enough() -> None:
    """It is created before the command runs, in place of the next file, which is too small."""
    story = Story()
    story.start()
    story.write("small")
    expect(
        story.write("x" * 3000),
        """
        create journal-000002.new: 4096 bytes
        write journal-000002.new at 0: 64 bytes
        sync journal-000002.new
        rename journal-000002.new journal-000002
        sync directory
        write journal-000002 at 64: 41 bytes
        write journal-000002 at 105: 3025 bytes
        sync journal-000002
        create journal-000003.new: 1024 bytes
        write journal-000003.new at 0: 64 bytes
        sync journal-000003.new
        rename journal-000003.new journal-000003
        sync directory
        """
        + manifest(154),
    )


def test_a_clean_stop_ends_with_a_synced_record() -> None:
    story = Story()
    story.start()
    story.write("one")
    expect(
        story.stop(),
        """
        write journal-000001 at 133: 41 bytes
        sync journal-000001
        """
        + manifest(154)
        + "unlock",
    )


def test_a_clean_stop_under_everysec() -> None:
    """First the written turns become durable, then the record that says so."""
    story = Story(policy="everysec")
    story.start()
    story.write("one")
    expect(
        story.stop(),
        """
        sync journal-000001
        write journal-000001 at 133: 41 bytes
        sync journal-000001
        """
        + manifest(154)
        + "unlock",
    )


def test_a_start_after_a_clean_stop() -> None:
    """Nothing vouches for the last record itself, nor for MANIFEST, so they are written again."""
    story = Story()
    story.start()
    story.write("one")
    story.stop()
    expect(
        story.start(),
        """
        lock
        write journal-000001 at 133: 41 bytes
        sync journal-000001
        sync directory
        allocate journal-000002: 1024 bytes
        allocate journal-000001: 1024 bytes
        """
        + manifest(154),
    )
    expect(story.stop(), "unlock")


def test_a_start_after_a_crash() -> None:
    """The last turn is written again, because its fsync may have failed. The tail is overwritten with
    zeros."""
    story = Story()
    story.start()
    story.write("one")
    story.write("two")
    # Given a third turn, torn in its last byte
    story.files.corrupt("journal-000001", 202, b"torn record")
    story.files._locked = False
    expect(
        story.start(),
        """
        lock
        write journal-000001 at 202: 11 bytes
        write journal-000001 at 133: 69 bytes
        sync journal-000001
        sync directory
        allocate journal-000002: 1024 bytes
        allocate journal-000001: 1024 bytes
        """
        + manifest(202),
    )
    expect(
        story.write("three"),
        """
        write journal-000001 at 202: 41 bytes
        write journal-000001 at 243: 30 bytes
        sync journal-000001
        """,
    )


def test_a_start_after_a_crash_while_a_file_was_created() -> None:
    story = Story()
    story.start()
    story.stop()
    story.files.create("journal-000003.new", 10)
    story.operations()
    expect(
        story.start(),
        """
        lock
        remove journal-000003.new
        write journal-000001 at 64: 41 bytes
        sync journal-000001
        sync directory
        allocate journal-000002: 1024 bytes
        allocate journal-000001: 1024 bytes
        """
        + manifest(154),
    )


def test_a_start_without_any_record() -> None:
    """MANIFEST names both files, so their names are durable."""
    story = Story()
    story.start()
    story.files._locked = False
    expect(
        story.start(),
        """
        lock
        sync journal-000001
        sync directory
        allocate journal-000002: 1024 bytes
        allocate journal-000001: 1024 bytes
        """
        + manifest(200),
    )


def test_a_change_to_always_fsyncs_earlier_turns() -> None:
    story = Story(policy="no")
    story.start()
    story.write("one")
    story.journal.set_policy("always")
    expect(story.operations(), "sync journal-000001")
    expect(
        story.write("two"),
        """
        write journal-000001 at 133: 41 bytes
        write journal-000001 at 174: 28 bytes
        sync journal-000001
        """,
    )


def test_the_turn_that_changes_from_always_is_still_fsynced() -> None:
    """One of its commands may have replied that earlier writes are durable (WAITAOF)."""
    story = Story(policy="always")
    story.start()
    story.write("one")
    story.journal.set_policy("no")
    assert story.write("two").endswith("sync journal-000001")
    expect(
        story.write("three"),
        "write journal-000001 at 202: 41 bytes\nwrite journal-000001 at 243: 30 bytes",
    )
