"""The machine of `machine_pipelined` with checkpoints at random turns, restarts from real files, and a wall clock that
jumps by days. At the end, and at each restart, the store that was recovered must be as the model, and sound.

A checkpoint is an image of the state in memory; or a rotation, and some steps later the image that is built from the
files, as the helper process does it. Segments of which less than half is live are compacted then.
"""

from __future__ import annotations

from random import Random
from typing import ClassVar

from headwater.server.services.storage import compactions
from headwater.testing.clock import ManualClock
from headwater.testing.node import LocalStore
from tests.alarms import listening
from tests.crash.node_store import (
    JUMPS_S,
    HelpedCheckpoint,
    SmallFiles,
    checkpoint_now,
    compact,
)
from tests.property.machine_pending import PendingMachine
from tests.property.machine_pipelined import PipelinedMachine, Step

STEPS_OF_ONE = 60

_STEPS = {**PendingMachine.STEPS, "lose_power": 3, "checkpoint": 14}


class RestartMachine(PipelinedMachine):
    """A store with small files. ``restarts``, ``checkpoints`` and ``moved_bytes`` count."""

    STEPS: ClassVar[dict[str, int]] = _STEPS

    def __init__(self) -> None:
        super().__init__()
        self.patches.setattr(compactions, "LEAST_BYTES", 1)
        self.running: HelpedCheckpoint | None = None
        self.restarts = self.checkpoints = self.moved_bytes = 0

    def _new_store(self) -> LocalStore:
        return SmallFiles(clock=ManualClock(), cold=True)

    def checkpoint(self, random: Random) -> None:
        """Begin, make or end a checkpoint between two turns."""
        self.flush()
        running = self.running
        if running is None and random.random() < 0.4:
            checkpoint_now(self.store)
            self.checkpoints += 1
        elif running is None:
            self.running = HelpedCheckpoint(self.store)
        elif not running.is_built:
            running.build()
        else:
            self.running = None
            running.end()
            self.checkpoints += 1
            self.moved_bytes += compact(self.store)

    def jump_clock(self, random: Random) -> None:
        """Set the wall clock by hours or days; no time passes."""
        self.flush()
        seconds = random.choice(JUMPS_S)
        self.store.clock.jump(seconds)
        self.model.wall += seconds * 1000

    def lose_power(self, random: Random) -> None:
        """Crash with any part of what is not durable, and restart; in half of the cases the wall clock has jumped
        meanwhile. Then compare."""
        self.settle()
        files = self.store.files
        assert files is not None
        (self.store.files,) = files.crash_images(seed=random.randrange(2**32), count=1)
        if random.random() < 0.5:
            self.jump_clock(random)
        self.running = None
        self.store.node = self.store._open()
        self._connect()
        self.model.now = max(self.model.now, self.model.wall)
        self.restarts += 1
        self.check()

    def finish(self) -> None:
        """Restart once more, and undo the patches."""
        try:
            self.lose_power(Random(len(self.sent)))
        finally:
            self.patches.undo()


_NAMES = [name for name, often in _STEPS.items() for _ in range(often)]


def history(seed: int) -> list[Step]:
    """Return the steps of a seed."""
    random = Random(seed)
    first = [Step("resize", random.getrandbits(32)), Step("xadd", random.getrandbits(32))]
    more = (random.choice(_NAMES) for _ in range(STEPS_OF_ONE - len(first)))
    return first + [Step(what, random.getrandbits(32)) for what in more]


def restarted(seed: int) -> tuple[RestartMachine, str]:
    """Run a history on a new store. Return the machine, and what went wrong, if anything."""
    machine = RestartMachine()
    with listening() as heard:
        try:
            for step in history(seed):
                machine.do(step)
            machine.finish()
        except Exception as error:
            machine.patches.undo()
            return machine, str(error) if isinstance(error, AssertionError) else repr(error)
    return machine, f"a false alarm: {heard[0]}" if heard else ""
