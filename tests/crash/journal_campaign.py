"""Crashes a journal before every operation of a history and checks what is recovered.

After any number of crashes at any moments the following must hold:
- opening succeeds: what a crash leaves is a tail, never damage;
- what is recovered is a prefix of what was issued (I7), in order and without gaps;
- it contains everything that was acknowledged as durable (I1);
- the journal can be written again, and nothing that was cut off reappears;
- what a start logs contains no alarm (`tests.alarms`): nothing is damaged.

Now and then the journal is rotated, and an image is made and taken into use, at once or some turns later.
"""

from __future__ import annotations

import dataclasses
import errno
from random import Random

from headwater.config.storage import FsyncPolicy
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.errors import NodePoisoned, StoreUnusable
from headwater.journal.images.rotation import Rotation
from headwater.journal.log.journal import Journal
from headwater.persistence.replaying import log_recovery
from headwater.testing.files import CrashableFiles
from tests.alarms import listening
from tests.crash.journal_tools import fact, facts_at, facts_in, open_journal, turn_of, write_image

FILE_BYTES = 4096


@dataclasses.dataclass
class Campaign:
    """One history with one policy. ``images`` crashes are tried before each operation."""

    policy: FsyncPolicy
    seed: int
    turns: int = 60
    images: int = 3
    trials: int = 0
    groups: int = 0
    images_used: int = 0
    failures: list[str] = dataclasses.field(default_factory=list)

    def run(self) -> Campaign:
        """Run the history. `failures` has what did not hold."""
        self._random = Random(self.seed)
        self._draws = Random(self.seed + 1)
        self._files = CrashableFiles(seed=self.seed)
        self._issued: list[bytes] = []
        self._durable = 0
        self._rotated: Rotation | None = None
        self._files.on_operation = self._crash
        journal = self._start()
        for turn in range(1, self.turns + 1):
            self._turn(journal, turn)
            if self._random.random() < 0.1:
                self._checkpoint(journal)
            if self._random.random() < 0.05:
                journal.close()
                self._rotated = None
                self._durable = len(self._issued)
                journal = self._start()
        journal.close()
        self._durable = len(self._issued)
        self._crash("the end")
        self.groups = len(self._issued)
        return self

    def _start(self) -> Journal:
        journal, facts = open_journal(self._files, policy=self.policy, file_bytes=FILE_BYTES)
        assert facts == self._issued
        return journal

    def _turn(self, journal: Journal, turn: int) -> None:
        random = self._random
        many = random.choice((1, 1, 2, 6))
        sizes = [random.choice((1, 20, 100, 400)) for _ in range(many)]
        if random.random() < 0.03:
            sizes.append(random.choice((3000, 6000)))
        facts = [fact(b"%d.%d " % (turn, n) + b"x" * size) for n, size in enumerate(sizes)]
        buffer = turn_of(journal, facts, turn=turn)
        assert journal.admits(len(buffer)) is None
        self._issued += facts
        waited_for = random.random() < 0.9
        journal.commit(buffer, sync=waited_for)
        if self.policy == "always" and waited_for:
            self._durable = len(self._issued)
        flusher = journal._flusher
        if self.policy == "everysec" and random.random() < 0.2 and flusher.flush_once():
            self._durable = len(self._issued)

    def _checkpoint(self, journal: Journal) -> None:
        """Rotate, or take an image of the last rotation into use."""
        if self._rotated is None:
            self._rotated = journal.rotate()
            self._until = len(self._issued)
            self._durable = self._until
            if self._random.random() < 0.5:
                return
        facts = facts_at(journal, self._rotated)
        if facts != self._issued[: self._until]:
            self.failures.append(f"{self.policy}, seed {self.seed}: other facts at a rotation")
        entry = write_image(journal, self._rotated, facts)
        journal.use_image(self._rotated, entry)
        journal.remove_replaced()
        self._rotated = None
        self.images_used += 1

    # --- crashes --------------------------------------------------------------------------------

    def _crash(self, line: str) -> None:
        seed = self._draws.randrange(2**32)
        for number, image in enumerate(self._files.crash_images(seed=seed, count=self.images)):
            where = f"{self.policy}, seed {self.seed}, image {number} before {line!r}"
            self._try(image, where, self._durable, again=self._draws.random() < 0.3)

    def _try(self, image: CrashableFiles, where: str, durable: int, *, again: bool) -> None:
        """Recover one image, write to it, and crash again."""
        self.trials += 1
        if again:
            # Crash while opening repairs what the first crash left
            image.on_operation = lambda line: self._crash_again(
                image, f"{where}, {line!r}", durable
            )
        try:
            journal, facts = open_journal(image, file_bytes=FILE_BYTES)
            image.on_operation = None
            with listening() as heard:
                log_recovery(journal.recovery, Keyspace())
            self.failures += [f"{where}: a false alarm: {line}" for line in heard]
            self._compare(facts, where, durable)
            self._go_on(image, journal, facts, where)
        except Exception as error:
            self.failures.append(f"{where}: {error!r}")

    def _crash_again(self, image: CrashableFiles, where: str, durable: int) -> None:
        for second in image.crash_images(seed=self._draws.randrange(2**32), count=1):
            self._try(second, where, durable, again=False)

    def _compare(self, facts: list[bytes], where: str, durable: int) -> None:
        if facts != self._issued[: len(facts)]:
            self.failures.append(f"{where}: not a prefix of what was issued")
        if len(facts) < durable:
            self.failures.append(f"{where}: {durable} groups were durable, {len(facts)} remain")

    def _go_on(
        self, image: CrashableFiles, journal: Journal, facts: list[bytes], where: str
    ) -> None:
        """Write one more turn, of a size after which old records could follow without a gap."""
        lost = self._issued[len(facts) : len(facts) + 1] or [fact("next")]
        new = b"\x21" + lost[0][1:]
        buffer = turn_of(journal, [new], turn=journal.recovery.last_turn + 1)
        assert journal.admits(len(buffer)) is None
        journal.commit(buffer)
        for second in image.crash_images(seed=self.seed, count=1):
            after, _recovery = facts_in(second)
            if after != [*facts, new]:
                self.failures.append(f"{where}: {len(after)} groups after one more turn")


def failing(policy: FsyncPolicy, seed: int, *, turns: int = 30) -> tuple[int, list[str]]:
    """Run a history repeatedly; each time another operation fails with EIO. Return trials and failures.

    After the failure the process ends. It starts again either on the same machine, whose memory may contain
    what the disk does not, or after a crash of the machine.
    """
    trials, operation = 0, 0
    failures: list[str] = []
    while True:
        files = CrashableFiles(seed=seed + operation)
        files.fail("any", passes=operation)
        acknowledged, issued = _until_failure(files, policy, Random(seed), turns)
        if not any("fails with" in line for line in files.transcript):
            return trials, failures
        files._locked = False
        starts = [*files.crash_images(seed=seed + operation, count=3), files]
        for image in starts:
            trials += 1
            where = f"{policy}, seed {seed}, operation {operation} failed"
            found = _recovered_twice(image)
            if found != issued[: len(found)]:
                failures.append(f"{where}: not a prefix of what was issued")
            if len(found) < acknowledged:
                failures.append(f"{where}: {acknowledged} acknowledged, {len(found)} remain")
        operation += 1


def _until_failure(
    files: CrashableFiles, policy: FsyncPolicy, random: Random, turns: int
) -> tuple[int, list[bytes]]:
    issued: list[bytes] = []
    acknowledged = 0
    try:
        journal, _facts = open_journal(files, policy=policy, file_bytes=512)
        for turn in range(1, turns + 1):
            one = fact(b"%d " % turn + b"x" * random.choice((1, 50, 150)))
            buffer = turn_of(journal, [one], turn=turn)
            if journal.admits(len(buffer)) is not None:
                continue
            issued.append(one)
            journal.commit(buffer)
            if policy == "always":
                acknowledged = len(issued)
            if turn % 6 == 0:
                _checkpoint_or_go_on(journal)
                acknowledged = len(issued)
        journal.close()
        acknowledged = len(issued)
    except (NodePoisoned, StoreUnusable) as error:
        if "Errno 5" not in str(error) and "Input/output error" not in str(error):
            raise
    return acknowledged, issued


def _checkpoint_or_go_on(journal: Journal) -> None:
    """Make an image and use it. An error of the disk outside the journal's own files ends only that."""
    rotation = journal.rotate()
    try:
        entry = write_image(journal, rotation, facts_at(journal, rotation))
        journal.use_image(rotation, entry)
        journal.remove_replaced()
    except OSError as error:
        if error.errno != errno.EIO:
            raise


def _recovered_twice(image: CrashableFiles) -> list[bytes]:
    """Return the recovered facts. Checks that the next start, after one more turn and a crash, adds only
    that turn."""
    journal, facts = open_journal(image, file_bytes=512)
    new = fact("new")
    buffer = turn_of(journal, [new], turn=journal.recovery.last_turn + 1)
    assert journal.admits(len(buffer)) is None
    journal.commit(buffer)
    for second in image.crash_images(seed=0, count=1):
        assert facts_in(second)[0] == [*facts, new]
    return facts
