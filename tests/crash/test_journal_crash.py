"""A journal survives any crash at any operation, and the tests of that detect planted faults."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from headwater.config.storage import FsyncPolicy
from headwater.errors import JournalDamaged
from headwater.journal.format import names
from headwater.journal.images.catalog import Catalog
from headwater.journal.log import starting
from headwater.testing.files import CrashableFiles
from tests.crash import campaign
from tests.crash.journal_campaign import Campaign, failing
from tests.crash.journal_tools import fact, facts_in, open_journal, read_with, write_turn

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "policy",
    ["always", *(pytest.param(one, marks=pytest.mark.slice) for one in ("everysec", "no"))],
)
def test_no_crash_loses_what_was_acknowledged_or_leaves_a_hole(policy: FsyncPolicy) -> None:
    done = Campaign(policy, seed=1, turns=30).run()
    assert done.failures == []
    assert done.groups > 50
    assert done.images_used > 0
    assert done.trials > 300


def test_every_crash_of_a_small_journal_is_survived() -> None:
    """Exhaustive: every subset of what was not synced, and every byte at which a write can tear."""
    files = CrashableFiles()
    issued: list[bytes] = []
    acknowledged = 0
    trials = 0

    def crash(_line: str) -> None:
        nonlocal trials
        for image in files.all_crash_images():
            facts = open_journal(image, file_bytes=256)[1]
            assert facts == issued[: len(facts)]
            assert len(facts) >= acknowledged
            trials += 1

    files.on_operation = crash
    journal, _ = open_journal(files, file_bytes=256)
    for turn, texts in enumerate([["a", "b"], ["c" * 30], ["d" * 90, "e"], ["f"]], start=1):
        issued += [fact(text) for text in texts]
        write_turn(journal, *texts, turn=turn)
        acknowledged = len(issued)
    journal.close()
    crash("the end")
    assert facts_in(files)[0] == issued
    assert trials > 1000


@pytest.mark.parametrize("policy", campaign.POLICIES)
def test_after_a_disk_error_the_journal_shows_only_what_is_durable(
    policy: FsyncPolicy,
) -> None:
    trials, failures = failing(policy, seed=1)
    assert failures == []
    assert trials > 100


# --- a test of the tests ------------------------------------------------------------------------


class Found(BaseException):
    """The failure that was looked for; the campaign goes on after every other exception."""


class UntilFound(list[str]):
    """A campaign's failures, which end it with the first one that contains all ``words``."""

    def __init__(self, words: tuple[str, ...]) -> None:
        super().__init__()
        self._words = words

    def append(self, failure: str) -> None:
        super().append(failure)
        if all(word in failure for word in self._words):
            raise Found


def caught(*words: str, policy: FsyncPolicy = "always") -> bool:
    """Whether the campaign reports a failure that contains ``words``."""
    try:
        Campaign(policy, seed=1, failures=UntilFound(words)).run()
    except Found:
        return True
    return False


class UnsyncedFiles(CrashableFiles):
    """Makes new files durable, but not what is written to them later."""

    def sync(self, name: str) -> None:
        if name.endswith(names.TEMPORARY_SUFFIX):
            super().sync(name)


@pytest.mark.slow
def test_a_lost_fsync_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.crash.journal_campaign.CrashableFiles", UnsyncedFiles)
    assert caught("were durable")


@pytest.mark.slow
def test_a_lost_fsync_of_the_directory_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CrashableFiles, "sync_directory", lambda self: None)
    assert caught()


@pytest.mark.slow
def test_a_file_that_is_left_without_fsync_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    # With this policy nothing else syncs the file
    monkeypatch.setattr("tests.crash.journal_campaign.CrashableFiles", UnsyncedFiles)
    assert caught(policy="no")


@pytest.mark.slow
def test_a_checksum_that_checks_nothing_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    class Anything(int):
        """Is equal to any stored checksum."""

        def __ne__(self, other: object) -> bool:
            return False

        __eq__ = object.__eq__
        __hash__ = int.__hash__

    read_with(monkeypatch, lambda crc, source, start, end: Anything())
    assert caught()


@pytest.mark.slow
def test_a_tail_that_is_not_zeroed_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "_write_zeros", lambda files, cut: None)
    assert caught(policy="no")


@pytest.mark.slow
def test_a_tail_that_is_trusted_after_a_failed_fsync_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class SkipsRewrites(CrashableFiles):
        """Ignores writes of bytes that are there already."""

        def write(self, name: str, offset: int, data: bytes | bytearray | memoryview) -> None:
            if bytes(self.read(name))[offset:].startswith(bytes(data)):
                return
            super().write(name, offset, data)

    monkeypatch.setattr("tests.crash.journal_campaign.CrashableFiles", SkipsRewrites)
    with pytest.raises(JournalDamaged, match="although a later record says"):
        failing("always", seed=1)


@pytest.mark.slow
def test_a_name_that_is_trusted_after_a_failed_fsync_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(starting, "_rename_again", lambda files, recovery: None)
    with pytest.raises(JournalDamaged, match="is missing"):
        failing("always", seed=1)


@pytest.mark.slow
def test_a_manifest_that_names_an_image_that_is_not_durable_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class UnsyncedImages(CrashableFiles):
        """Makes no image durable."""

        def sync(self, name: str) -> None:
            if not name.startswith("image-"):
                super().sync(name)

    monkeypatch.setattr("tests.crash.journal_campaign.CrashableFiles", UnsyncedImages)
    assert caught("JournalDamaged", "image-")


@pytest.mark.slow
def test_a_journal_file_that_is_removed_before_the_manifest_is_durable_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class EarlyRemovals(CrashableFiles):
        """Removes old files before the new name of MANIFEST is durable."""

        def rename(self, old: str, new: str) -> None:
            super().rename(old, new)
            if new == "MANIFEST":
                Catalog(self).remove_old()
                for naming in self._namings:
                    if naming.new is None:
                        naming.apply(self._durable_names)

    monkeypatch.setattr("tests.crash.journal_campaign.CrashableFiles", EarlyRemovals)
    assert caught("is missing")


# --- the campaign -------------------------------------------------------------------------------


@pytest.mark.slice
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("part", "one", "least"),
    [
        ("journal", partial(campaign.journal, turns=18), 2_500),
        ("errors", campaign.errors, 300),
    ],
)
def test_many_histories_survive_many_crashes(
    part: str, one: Callable[[int], campaign.Found], least: int
) -> None:
    """A sample of `make crash`, with a seed that the last sample did not use."""
    outcome = campaign.sample(part, 1, one)
    assert outcome.failures == []
    assert outcome.trials > least
