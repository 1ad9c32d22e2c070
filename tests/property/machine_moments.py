"""The machine of `machine_restarts` with ``journal-retention``: it notes the state at moments, and compares it with what
is read from the files afterwards, as `headwater restore --at` and ``?at=`` do.
"""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from headwater.config.config import Config
from headwater.engine.check import broken_invariants
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.errors import StoreUnusable
from headwater.journal.disk.files import DiskFiles
from headwater.journal.images.retention import oldest_past
from headwater.journal.log.journal import Journal
from headwater.persistence.backup import restore_at
from headwater.persistence.reading import keyspace_at
from headwater.persistence.replaying import recovered_keyspace
from headwater.testing.clock import ManualClock
from headwater.testing.files import CrashableFiles
from headwater.testing.node import LocalStore
from tests.alarms import listening
from tests.crash.node_store import SmallFiles, content
from tests.property.machine_pipelined import Step, unlike
from tests.property.machine_restarts import RestartMachine
from tests.property.pictures import of_model

STEPS_OF_ONE = 150
KEPT_S = (5, 20, 100_000)
"""The values of ``journal-retention``. A history takes a minute or less."""


class MomentMachine(RestartMachine):
    """``moments`` are the states at the end of times: what the model has, and the bytes of the entries."""

    STEPS: ClassVar[dict[str, int]] = {
        name: 0 if name == "jump_clock" else often for name, often in RestartMachine.STEPS.items()
    }

    def __init__(self, seed: int) -> None:
        self.retention_s = Random(seed).choice(KEPT_S)
        self.moments: dict[int, dict[bytes, Any]] = {}
        super().__init__()

    def _new_store(self) -> LocalStore:
        config = Config(port=0, journal_retention=self.retention_s)
        return SmallFiles(clock=ManualClock(), cold=True, config=config)

    def jump_clock(self, random: Random) -> None:
        """Do nothing: a moment is one of steady time."""

    def pass_time(self, ms: int) -> None:
        """Note the state, which no later change of this moment follows, and let time pass."""
        self.check()
        self.moments[self.model.now] = self._noted()
        super().pass_time(ms)

    def _noted(self) -> dict[bytes, Any]:
        """The model's state; `check` has found that the store has the same, so the bytes of entries are its own."""
        noted = content(self.store.node.keyspace)
        for key, stream in of_model(self.model).items():
            for group in stream["groups"].values():
                group["consumers"] = sorted(group["consumers"])
            noted[key] |= stream
        return deepcopy(noted)  # the model goes on to change its lists


def on_disk(files: CrashableFiles, directory: Path) -> DiskFiles:
    """Write files that are in memory to a directory."""
    directory.mkdir()
    for name in files.names():
        (directory / name).write_bytes(bytes(files.content(name).data))
    return DiskFiles(directory)


def compared(seed: int, directory: Path, *, most: int) -> tuple[int, int, list[str]]:
    """Run a history, and read the store at up to ``most`` of its moments. Return how many moments were compared, how
    many were older than what is kept, and what was wrong, alarms included."""
    with listening() as heard:
        found, older, wrong = _compared(seed, directory, most=most)
    return found, older, wrong + [f"seed {seed}: a false alarm: {line}" for line in heard]


def _compared(seed: int, directory: Path, *, most: int) -> tuple[int, int, list[str]]:
    machine = MomentMachine(seed)
    random = Random(seed)
    names = [name for name, often in machine.STEPS.items() for _ in range(often)]
    try:
        for _ in range(STEPS_OF_ONE):
            machine.do(Step(random.choice(names), random.getrandbits(32)))
        machine.finish()
        assert machine.store.files is not None
        store = on_disk(machine.store.files, directory / "store")
        chosen = random.sample(sorted(machine.moments), min(most, len(machine.moments)))
        found, older, wrong = 0, 0, []
        for at_ms in chosen:
            what = difference(store, directory / str(at_ms), at_ms, machine)
            found += what != OLDER
            older += what == OLDER
            if what not in {"", OLDER}:
                wrong.append(f"seed {seed}, {at_ms}: {what}")
        return found, older, wrong
    finally:
        machine.patches.undo()


OLDER = "older than what is kept"


def difference(store: DiskFiles, restored: Path, at_ms: int, machine: MomentMachine) -> str:
    """Return how the store at a moment differs from what was noted; empty if it does not."""
    noted = machine.moments[at_ms]
    try:
        keyspace = keyspace_at(store, at_ms)
        if broken := broken_invariants(keyspace):
            return f"read: {broken}"
        if what := _unlike(keyspace, noted):
            return f"read: {what}"
    except StoreUnusable:
        oldest = oldest_past(store)
        assert oldest is not None
        assert oldest.image is not None
        return OLDER if at_ms < oldest.image.now_ms else "it is kept, but cannot be read"
    finally:
        store.unlock()  # closes its files
    restore_at(store.directory, restored, at_ms)
    journal = Journal.open(DiskFiles(restored), policy="no", clock=ManualClock())
    try:
        keyspace = recovered_keyspace(journal)
        if broken := broken_invariants(keyspace):
            return f"restored: {broken}"
        what = _unlike(keyspace, noted)
        return what and f"restored: {what}"
    finally:
        journal.close()


def _unlike(keyspace: Keyspace, noted: dict[bytes, Any]) -> str:
    where, ours, theirs = unlike(content(keyspace), noted)
    return where and f"{where} is {ours!r}, was {theirs!r}"
