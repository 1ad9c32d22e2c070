"""A history and an offset name a state of the store, across restarts, files and images."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.journal.format.checksum import LOCAL_KIND
from headwater.journal.format.manifest import Left, StoreHistory
from headwater.journal.log.journal import Journal
from headwater.testing.files import CrashableFiles
from tests.crash.journal_tools import (
    Written,
    fact,
    facts_at,
    open_journal,
    turn_of,
    write_image,
    write_turn,
)

FILE_BYTES = 512
LOCAL = bytes([LOCAL_KIND]) + b"where bodies are"


def history_of(journal: Journal) -> StoreHistory:
    """Return the history of a journal that can be written."""
    history: StoreHistory | None = journal.history
    assert history is not None
    return history


def opened(files: CrashableFiles) -> Journal:
    """Return the journal in files that no process uses any more."""
    files._locked = False
    return open_journal(files, file_bytes=FILE_BYTES)[0]


def write(journal: Journal, facts: list[bytes]) -> None:
    """Write one turn with a group for each of these facts."""
    buffer = turn_of(journal, facts, turn=journal._writer.turn + 1)
    assert journal.admits(len(buffer)) is None
    journal.commit(buffer)


def checkpoint(journal: Journal) -> None:
    """Replace the journal so far by an image."""
    rotation = journal.rotate()
    journal.use_image(rotation, write_image(journal, rotation, facts_at(journal, rotation)))
    journal.remove_replaced()


def test_an_offset_counts_the_bytes_of_facts() -> None:
    # Given a new store
    journal = opened(CrashableFiles())
    assert journal.offset == 0
    # When turns are written
    write_turn(journal, "one", "two", turn=1)
    write_turn(journal, "three", turn=2)
    # Then the offset counts their facts, without headers of groups and records of fsyncs
    assert journal.offset == sum(len(fact(text)) for text in ("one", "two", "three"))


def test_facts_about_this_directory_do_not_count() -> None:
    journal = opened(CrashableFiles())
    write(journal, [LOCAL, fact("one"), LOCAL])
    assert journal.offset == len(fact("one"))


def test_a_clean_stop_keeps_history_and_offset() -> None:
    # Given a store that left a history
    written = Written(3, file_bytes=FILE_BYTES)
    journal = opened(written.files)
    history, offset = history_of(journal), journal.offset
    assert history.left
    # When it stops and starts again
    journal.close()
    again = opened(written.files)
    # Then history and offset are the same
    assert (again.history, again.offset) == (history, offset)


def test_a_crash_begins_a_new_history_that_remembers_the_former() -> None:
    # Given a store whose process was killed
    written = Written(3, file_bytes=FILE_BYTES)
    before, offset = history_of(written.journal), written.journal.offset
    # When it starts again
    journal = opened(written.files)
    # Then it has another history, which left the former at the offset of what was read
    history = history_of(journal)
    assert history.id != before.id
    assert history.left == (*before.left, Left(before.id, offset))
    # And continues to count there
    assert journal.offset == offset
    write_turn(journal, "more", turn=4)
    assert journal.offset == offset + len(fact("more"))


def test_a_new_history_is_durable_before_anything_is_written_to_it() -> None:
    # Given a store that started after a crash and was killed before it wrote anything
    written = Written(3, file_bytes=FILE_BYTES)
    first = history_of(opened(written.files))
    # When it starts again, then it remembers that history
    assert Left(first.id, written.journal.offset) in history_of(opened(written.files)).left


@pytest.mark.parametrize("seed", range(8))
def test_after_a_loss_of_power_the_offset_counts_what_is_left(seed: int) -> None:
    # Given a store with everysec whose last turns may not be on disk
    written = Written(30, policy="everysec", file_bytes=FILE_BYTES)
    ends = [0, *accumulate(map(len, written.facts))]
    (image,) = written.files.crash_images(seed=seed, count=1)
    # When it starts on what the disk has
    journal, facts = open_journal(image, file_bytes=FILE_BYTES)
    # Then the former history is left where its records end
    assert facts == written.facts[: len(facts)]
    assert journal.offset == ends[len(facts)]
    assert history_of(journal).left[-1].offset == ends[len(facts)]


steps = st.one_of(
    st.lists(st.one_of(st.just(LOCAL), st.binary(max_size=300).map(fact)), min_size=1, max_size=4),
    st.sampled_from(["image", "stop", "kill"]),
)


@given(st.lists(steps, max_size=20))
def test_any_sequence_of_turns_images_and_restarts_counts_each_fact_once(
    plan: list[list[bytes] | str],
) -> None:
    files = CrashableFiles()
    journal, counted = opened(files), 0
    for step in plan:
        history = history_of(journal)
        if isinstance(step, list):
            write(journal, step)
            counted += sum(len(one) for one in step if one != LOCAL)
        elif step == "image":
            checkpoint(journal)
        else:
            if step == "stop":
                journal.close()
            journal = opened(files)
            # The offsets of the histories that it left never decrease
            left = [one.offset for one in history_of(journal).left]
            assert left == sorted(left)
            assert history_of(journal) == history or left[-1] == counted
        assert journal.offset == counted
