"""The supervisor looks after the leases of consumers that have started: not of those in an idle quarantine process."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.worker import shop
from tests.worker.apps import Store, elapsed, eventually
from tests.worker.processes import quarantine_of, supervised

pytestmark = pytest.mark.slow

CLAIM_AFTER = {"SHOP_CLAIM_AFTER": "1500ms"}

SEVERAL_LEASES = 3.0
"""Several times the lease, in seconds, which is a third of `CLAIM_AFTER`."""

NOT_RENEWED = "the quarantine process has not renewed its leases"


def _connections(pid: int) -> set[str]:
    """The TCP sockets of a process, by inode. Source: proc(5)."""
    tcp = {line.split()[9] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]}
    held = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        name = str(descriptor.readlink())
        if name.startswith("socket:["):
            held.add(name.removeprefix("socket:[").removesuffix("]"))
    return held & tcp


async def test_an_idle_quarantine_process_is_not_reported_and_costs_no_connection(
    store: Store,
) -> None:
    # Given `headwater work` without a suspect
    with supervised(store.url, "--workers", "1", **CLAIM_AFTER) as parent:
        await eventually(lambda: parent.log().count("1 consumer on") == 2)
        await eventually(lambda: "reads orders as" in parent.log())

        # When several leases pass
        await eventually(elapsed(SEVERAL_LEASES))

        # Then the supervisor has asked the store for nothing
        assert not _connections(parent.pid)

        # And the log has no warning, also not at the stop
        parent.signal(signal.SIGTERM)
        assert parent.wait() == 0
        assert "WARNING" not in parent.log()
        assert "ERROR" not in parent.log()


async def test_the_quarantine_process_is_watched_once_it_has_had_a_suspect(store: Store) -> None:
    # Given a quarantine process that has handled a suspect
    with supervised(store.url, "--workers", "1", SHOP_MAX_CRASHES="1", **CLAIM_AFTER) as parent:
        await eventually(lambda: "reads orders as" in parent.log())
        await store.look.xadd("orders", dict(shop.orders.codec.encode(shop.Order(1, do="kill"))))
        await eventually(store.dead)
        await eventually(lambda: parent.log().count("reads orders as") >= 3)

        # When several leases pass, then it renews them itself
        await eventually(elapsed(SEVERAL_LEASES))
        assert NOT_RENEWED not in parent.log()

        # When it is stopped, then the supervisor notices it
        (quarantine,) = quarantine_of(parent.pid)
        os.kill(quarantine, signal.SIGSTOP)
        await eventually(lambda: f"{NOT_RENEWED} for" in parent.log())
        os.kill(quarantine, signal.SIGCONT)
