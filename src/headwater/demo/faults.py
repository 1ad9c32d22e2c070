"""What is done to the workers: one is stopped with work in its buffer, one is killed while it owns
entries.

Rule 1. What is claimed about a worker is read from the server while that worker, and where it
        matters every other one, stands still (SIGSTOP): nothing is timed, nothing is guessed.
Rule 2. A moment counts as still when the server has given the same answer `SAME` times: what a
        worker had sent before it stood still has been read by then.
Rule 3. Whoever stands still is woken, whatever happens.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from headwater.demo.children import ChildFailed
from headwater.demo.evidence import Held, held, pending
from headwater.demo.names import APP, GROUP, PAUSING, SLOW_SIGNAL, STREAM
from headwater.messages import RESERVED_PREFIX

if TYPE_CHECKING:
    from redis import Redis

T = TypeVar("T")

SAME = 4
"""Answers in a row that must be the same."""

BETWEEN_SECONDS = 0.05
"""Between two of them: many turns of a server that is not overwhelmed."""

WITHIN_SECONDS = 30.0


def pid_of(consumer: str) -> int:
    """The process behind a consumer that is called host-pid-boot.

    >>> pid_of("build-7.local-4711-90ab12cd")
    4711
    """
    return int(consumer.rsplit("-", 2)[1])


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def works(pid: int) -> bool:
    """Whether the process runs, and is a worker: a pid that is free again may be anybody's."""
    try:
        return APP.encode() in Path(f"/proc/{pid}/cmdline").read_bytes() and alive(pid)
    except OSError:
        return False


def crew(client: Redis) -> dict[str, int]:
    """The group's consumers whose processes live: name → pid."""
    groups = client.xinfo_groups(STREAM) if client.exists(STREAM) else []
    if GROUP not in [group["name"].decode() for group in groups]:
        return {}
    named = [consumer["name"].decode() for consumer in client.xinfo_consumers(STREAM, GROUP)]
    workers = [name for name in named if not name.startswith(RESERVED_PREFIX)]
    return {name: pid_of(name) for name in workers if works(pid_of(name))}


def until(look: Callable[[], T], *, what: str, within: float = WITHIN_SECONDS) -> T:
    """What ``look`` returns as soon as that is something; `ChildFailed` after ``within`` seconds."""
    deadline = time.monotonic() + within
    while not (found := look()):
        if time.monotonic() > deadline:
            raise ChildFailed(f"{what}: not seen within {within:g} seconds")
        time.sleep(0.02)
    return found


def still(look: Callable[[], T]) -> T:
    """What ``look`` returns once it has returned the same `SAME` times."""
    found, same = look(), 1
    deadline = time.monotonic() + WITHIN_SECONDS
    while same < SAME:
        if time.monotonic() > deadline:
            raise ChildFailed("the workers stand still, and what they own keeps changing")
        time.sleep(BETWEEN_SECONDS)
        again = look()
        same = same + 1 if again == found else 1
        found = again
    return found


@contextmanager
def standing_still(pids: Collection[int]) -> Iterator[None]:
    """SIGSTOP for each process inside the block, SIGCONT behind it."""
    try:
        for pid in pids:
            tell(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in pids:
            tell(pid, signal.SIGCONT)


def tell(pid: int, number: signal.Signals) -> None:
    """Send a signal; nothing when the process has ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def stop_one(client: Redis) -> Held:
    """SIGTERM for a worker that has work in its buffer; what it handed back.

    It is made slow before, so that it has handled and settled what it could, and its buffer is full.
    The others stand still meanwhile, so that what was handed back lies there owned by nobody.
    """
    names = crew(client)
    name = max(names)
    tell(names[name], SLOW_SIGNAL)
    until(
        lambda: len(still(lambda: held(client, name)).entries) > PAUSING,
        what=f"{name}, made slow, has more than it can handle at a time",
    )
    with standing_still(names.values()):
        before = still(lambda: pending(client))
        tell(names[name], signal.SIGTERM)
        tell(names[name], signal.SIGCONT)
        until(lambda: not alive(names[name]), what=f"{name}, told to stop, ends")
        after = still(lambda: pending(client))
    nobody = {entry_id for entry_id, (consumer, _deliveries) in before.items() if not consumer}
    handed_back = {
        entry_id: deliveries
        for entry_id, (consumer, deliveries) in after.items()
        # Owned by nobody now, or given at once to one whose read was waiting in the server.
        if (consumer == "" and entry_id not in nobody)
        or (consumer != name and before.get(entry_id, ("", 0))[0] == name)
    }
    return Held(name, handed_back)


def stop_and_kill_one(client: Redis, *, seen: Callable[[Held], None]) -> Held:
    """SIGSTOP for a worker until it is seen to own pending entries, then SIGKILL; what it owned.

    ``seen`` is told what it owns while it stands still.
    """
    names = crew(client)
    summary = client.xpending(STREAM, GROUP)["consumers"]
    owned = {row["name"].decode(): int(row["pending"]) for row in summary}
    name = max(names, key=lambda name: owned.get(name, 0))
    with standing_still([names[name]]):
        until(lambda: held(client, name).entries, what=f"{name}, standing still, owns entries")
        found = still(lambda: held(client, name))
        seen(found)
        tell(names[name], signal.SIGKILL)
    until(lambda: not alive(names[name]), what=f"{name}, killed, ends")
    # Its read may have been waiting in the server, and been given entries until the very end.
    later = still(lambda: held(client, name))
    return Held(name, {**later.entries, **found.entries})
