"""Flips single bits in MANIFEST, journal files, images and segments of a store, and opens it: no loss is silent.

For each flip one of the following must hold:

- opening is refused with an error that names the file, and nothing is changed;
- the store is opened, and its content is whole;
- its content is that after an earlier command, and a cut or a note reports it;
- some entries cannot be read, which is an error that names the segment, and everything else is whole.

`cuts` does the same with each of the four files cut at every byte. Only there a loss may go unreported, and only in a
store that did not stop cleanly: if all that follows the last complete record are zeros, as in a file whose newest
records never reached the disk, no data that remains shows the loss.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from random import Random
from typing import Any, Final

import pytest

from headwater.engine.check import broken_invariants
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.engine.streams.stream import StoredStream
from headwater.errors import JournalDamaged, StoreUnusable
from headwater.journal.format.names import number_of
from headwater.journal.format.records import FILE_HEADER_BYTES, file_key, read_groups
from headwater.persistence.replaying import recovered_keyspace
from headwater.testing.clock import ManualClock
from headwater.testing.files import CrashableFiles
from headwater.testing.node import Word
from tests.crash.journal_tools import bytes_of, copied, flip_bit
from tests.crash.node_store import (
    HelpedCheckpoint,
    SmallFiles,
    checkpoint_now,
    opened,
    tiny_segments,
)
from tests.property.model import GREATEST, LEAST
from tests.property.state import picture

FILES: Final = ("MANIFEST", "journal", "image", "segment")
"""The four kinds of file, as their names begin."""
AFTER: Final = 24
"""How many bytes after the last one that is not zero may be flipped, too."""


class _Whole:
    """The content of a store after one of its commands."""

    def __init__(self, keyspace: Keyspace) -> None:
        self.picture = picture(keyspace)
        self.skeleton = picture(keyspace, bodies=False)
        self.entries = {
            (sid, entry_id): stream.log.get(*entry_id)
            for sid, stream in keyspace.streams.items()
            for entry_id in _ids(stream)
        }


@dataclasses.dataclass
class FlipCampaign:
    """``trials`` flipped bits in the files of one history, as many in each kind of file."""

    seed: int
    trials: int = 1000
    commands: int = 50
    outcomes: Counter[str] = dataclasses.field(default_factory=Counter)
    """How often a damage of which file had which result."""
    failures: list[str] = dataclasses.field(default_factory=list)

    def run(self) -> FlipCampaign:
        """Run the history, then flip bits. `failures` has what was silent."""
        with pytest.MonkeyPatch.context() as patches:
            tiny_segments(patches)
            self._live(Random(self.seed))
            for trial in range(self.trials):
                random = Random(f"{self.seed} {trial}")
                kind = FILES[trial % len(FILES)]
                name = random.choice([one for one in self._content if one.startswith(kind)])
                data = self._content[name]
                at = random.randrange(min(len(data), len(data.rstrip(b"\0")) + AFTER))
                files, bit = copied(self._files), random.randrange(8)
                flip_bit(files, name, at, bit)
                self._look(kind, files, f"seed {self.seed}, bit {bit} of {name} at {at}")
        return self

    def cuts(self, *, step: int = 1) -> FlipCampaign:
        """Cut the newest file of each kind at every ``step``-th byte. A journal file has its size from the
        beginning; what is cut off is replaced by zeros."""
        with pytest.MonkeyPatch.context() as patches:
            tiny_segments(patches)
            self._live(Random(self.seed))
            for kind in FILES:
                name = max(
                    one
                    for one, data in self._content.items()
                    if one.startswith(kind) and len(data.rstrip(b"\0")) > 64
                )
                data = self._content[name]
                for size in range(0, len(data.rstrip(b"\0")), step):
                    files = copied(self._files)
                    files.cut(name, size)
                    unseen = False
                    if kind == "journal":
                        files.corrupt(name, size, bytes(len(data) - size))
                        unseen = not self.stopped and self._ends_in_zeros(name, files)
                    self._look(
                        kind, files, f"seed {self.seed}, {name} cut at {size}", unseen=unseen
                    )
        return self

    # --- the history ------------------------------------------------------------------------------

    def _live(self, random: Random) -> None:
        """Fill a store of all four kinds of file. It stops cleanly, or its process is killed."""
        store = SmallFiles(clock=ManualClock(), cold=True)
        client, late = store.client(), self.commands * 2 // 3
        self._states: list[_Whole] = []
        for number in range(1, self.commands + 1):
            client(*_command(random, number))
            if number == late // 2:
                checkpoint_now(store)
            if number == late:
                running = HelpedCheckpoint(store)
                running.build()
                running.end()
            if number >= late:
                self._states.append(_Whole(store.node.keyspace))
        store.advance(2.0)
        client("SET", "durable", "1")
        self._states.append(_Whole(store.node.keyspace))
        self.stopped = random.random() < 0.5
        if self.stopped:
            store.node.close()
        assert store.files is not None
        assert store.node.journal is not None
        self._key = store.node.journal.seed
        self._files, self._content = store.files, bytes_of(store.files)
        missing = [kind for kind in FILES if not any(one.startswith(kind) for one in self._content)]
        assert not missing, f"the history has no {missing}"

    def _ends_in_zeros(self, name: str, files: CrashableFiles) -> bool:
        """Whether only zeros follow the last complete record of a journal file."""
        data, key = bytes(files.content(name).data), file_key(number_of(name))
        groups = read_groups(memoryview(data), FILE_HEADER_BYTES, seed=self._key, key=key)
        return not any(data[max([FILE_HEADER_BYTES, *(group.end for group in groups)]) :])

    # --- the result -------------------------------------------------------------------------------

    def _look(self, kind: str, files: CrashableFiles, where: str, *, unseen: bool = False) -> None:
        before = bytes_of(files)
        try:
            journal = opened(files)
            keyspace = recovered_keyspace(journal)
        except (JournalDamaged, StoreUnusable) as error:
            self.outcomes[f"{kind}: refused"] += 1
            if f"memory:/{kind}" not in str(error):
                self.failures.append(f"{where}: no file in {error}")
            if bytes_of(files) != before:
                self.failures.append(f"{where}: refused, and something was changed")
            return
        except Exception as error:
            self.failures.append(f"{where}: {error!r}")
            return
        report = journal.recovery.report()
        said = bool(report.cuts or report.notes or keyspace.unread_blobs)
        try:
            result = self._judge(keyspace, said=said or unseen)
        except Exception as error:
            result = f"failed: {error!r}"
        self.outcomes[f"{kind}: {result}"] += 1
        if result.startswith(("silent", "failed")):
            self.failures.append(f"{where}: {result}")

    def _judge(self, keyspace: Keyspace, *, said: bool) -> str:
        """Compare the content with what it was. What is wrong without a report is ``silent``."""
        try:
            found = picture(keyspace)
        except JournalDamaged as error:
            return self._partly(keyspace, str(error))
        if broken := broken_invariants(keyspace):
            return f"silent: broken invariants: {broken}"
        if found == self._states[-1].picture:
            return "whole"
        if all(found != one.picture for one in self._states):
            return "silent: a state that never existed"
        return "an earlier state, reported" if said else "silent: less than was written"

    def _partly(self, keyspace: Keyspace, said: str) -> str:
        """Compare a store some of whose entries cannot be read."""
        if "memory:/segment-" not in said:
            return f"silent: no file in {said}"
        whole = self._states[-1]
        try:
            if picture(keyspace, bodies=False) != whole.skeleton:
                return "silent: another state, with damaged bodies"
        except JournalDamaged:
            return "ids that cannot be read"
        for (sid, entry_id), expected in whole.entries.items():
            try:
                if keyspace.streams[sid].log.get(*entry_id) != expected:
                    return f"silent: entry {entry_id} has other bytes"
            except JournalDamaged:
                continue
        return "bodies that cannot be read"


def _ids(stream: StoredStream) -> Any:
    spans, _ = stream.log.spans(LEAST, GREATEST)
    return [entry_id for span in spans for entry_id in span.ids()]


def _command(random: Random, number: int) -> tuple[Word, ...]:
    """Return a command; most of them add entries, which soon are in segments."""
    if number == 1:
        return ("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    some = f"{random.randrange(1, number)}-1"
    add = ("XADD", "s", f"{number}-1", "n", number, "pad", "x" * random.randrange(60))
    commands: tuple[tuple[Word, ...], ...] = (
        ("SET", "key", number),
        ("RPUSH", "list", "same"),
        ("HSET", "hash", f"f{number}", "v"),
        ("XDEL", "s", some),
        ("COPY", "s", "t", "REPLACE"),
        ("XACK", "s", "g", some),
        ("XREADGROUP", "GROUP", "g", "c", "COUNT", 2, "STREAMS", "s", ">"),
    )
    return add if random.random() < 0.6 else random.choice(commands)
