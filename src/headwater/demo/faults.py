"""Fault injection: one worker is stopped while its buffer is full, another is killed while it owns
entries.

Rule 1. The demo reads its facts about a worker from the server while that worker or, if needed, all workers
        are paused (SIGSTOP), so the facts do not depend on timing.
Rule 2. A state counts as stable after the server has given the same reply `SAME` times. The server has then
        read all bytes that a worker sent before the pause.
Rule 3. A paused process is always resumed, also after an error.
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
from headwater.demo.evidence import OwnedEntries, owned_entries, pending, pending_by_owner
from headwater.demo.names import APP, GROUP, PAUSED_CONCURRENCY, SLOW_SIGNAL, STREAM
from headwater.messages.keys import RESERVED_PREFIX

if TYPE_CHECKING:
    from redis import Redis

T = TypeVar("T")

SAME = 4
"""Number of consecutive equal replies after which a state counts as stable."""

BETWEEN_SECONDS = 0.05
"""Pause between two such replies, in seconds: many turns of a server that is not overloaded."""

WITHIN_SECONDS = 30.0


def pid_of(consumer: str) -> int:
    """Return the process id in a consumer's name, which is host-pid-boot.

    >>> pid_of("build-7.local-4711-90ab12cd")
    4711
    """
    return int(consumer.rsplit("-", 2)[1])


def alive(pid: int) -> bool:
    """Return whether the process runs; a zombie does not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def is_worker(pid: int) -> bool:
    """Return whether the process runs and is a worker: another program may have reused the pid."""
    try:
        return APP.encode() in Path(f"/proc/{pid}/cmdline").read_bytes() and alive(pid)
    except OSError:
        return False


def live_workers(client: Redis) -> dict[str, int]:
    """Return the group's consumers whose processes run: name → pid."""
    groups = client.xinfo_groups(STREAM) if client.exists(STREAM) else []
    if GROUP not in [group["name"].decode() for group in groups]:
        return {}
    named = [consumer["name"].decode() for consumer in client.xinfo_consumers(STREAM, GROUP)]
    workers = [name for name in named if not name.startswith(RESERVED_PREFIX)]
    return {name: pid_of(name) for name in workers if is_worker(pid_of(name))}


def until(look: Callable[[], T], *, what: str, within: float = WITHIN_SECONDS) -> T:
    """Wait until ``look`` returns a true value, and return that value. Raises `ChildFailed` after ``within``
    seconds."""
    deadline = time.monotonic() + within
    while not (found := look()):
        if time.monotonic() > deadline:
            raise ChildFailed(f"{what}: this did not happen within {within:g} seconds")
        time.sleep(0.02)
    return found


def stable(look: Callable[[], T]) -> T:
    """Wait until ``look`` has returned the same value `SAME` times in a row, and return that value."""
    found, same = look(), 1
    deadline = time.monotonic() + WITHIN_SECONDS
    while same < SAME:
        if time.monotonic() > deadline:
            raise ChildFailed("the workers are paused, but the entries they own keep changing")
        time.sleep(BETWEEN_SECONDS)
        again = look()
        same = same + 1 if again == found else 1
        found = again
    return found


@contextmanager
def paused(pids: Collection[int]) -> Iterator[None]:
    """Pause each process with SIGSTOP; resume it with SIGCONT after the block."""
    try:
        for pid in pids:
            send_signal(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in pids:
            send_signal(pid, signal.SIGCONT)


def send_signal(pid: int, number: signal.Signals) -> None:
    """Send a signal; do nothing if the process has ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def stop_one(client: Redis) -> OwnedEntries:
    """Send SIGTERM to a worker with a full buffer, and return the entries that it handed back.

    First the worker is slowed down until its buffer is full. While the worker stops, the other workers are
    paused, so that the entries that it hands back stay without an owner.
    """
    names = live_workers(client)
    name = max(names)
    send_signal(names[name], SLOW_SIGNAL)
    until(
        lambda: len(stable(lambda: owned_entries(client, name)).entries) > PAUSED_CONCURRENCY,
        what=f"{name} is slow and owns more entries than it handles at a time",
    )
    with paused(names.values()):
        before = stable(lambda: pending(client))
        send_signal(names[name], signal.SIGTERM)
        send_signal(names[name], signal.SIGCONT)
        until(lambda: not alive(names[name]), what=f"{name} ends after SIGTERM")
        after = stable(lambda: pending(client))
    unowned = {entry_id for entry_id, (consumer, _deliveries) in before.items() if not consumer}
    handed_back = {
        entry_id: deliveries
        for entry_id, (consumer, deliveries) in after.items()
        # The entry has no owner now, or the server gave it directly to a worker whose read was blocked.
        if (consumer == "" and entry_id not in unowned)
        or (consumer != name and before.get(entry_id, ("", 0))[0] == name)
    }
    return OwnedEntries(name, handed_back)


def pause_and_kill_one(client: Redis, *, seen: Callable[[OwnedEntries], None]) -> OwnedEntries:
    """Pause a worker (SIGSTOP) until the server shows that it owns entries, kill it with SIGKILL, and
    return the entries that it owned.

    ``seen`` is called with these entries while the worker is paused.
    """
    names = live_workers(client)
    owned = pending_by_owner(client)
    name = max(names, key=lambda name: owned.get(name, 0))
    with paused([names[name]]):
        until(
            lambda: owned_entries(client, name).entries, what=f"{name} is paused and owns entries"
        )
        found = stable(lambda: owned_entries(client, name))
        seen(found)
        send_signal(names[name], signal.SIGKILL)
    until(lambda: not alive(names[name]), what=f"{name} ends after SIGKILL")
    # The worker's read may have been blocked in the server, and received entries until the process ended.
    later = stable(lambda: owned_entries(client, name))
    return OwnedEntries(name, {**later.entries, **found.entries})
