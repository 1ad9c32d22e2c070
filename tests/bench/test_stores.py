"""The measured servers run on the documented cores, and are empty and idle between measurements."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.rows import OURS
from benchmarks.stores import HEADWATER, KINDS, Kind, cores, measured, running
from tests.peers import PeerMissing

pytestmark = pytest.mark.usefixtures("program")


@pytest.mark.peer
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_thread_of_a_server_is_on_the_servers_core(kind: Kind) -> None:
    if not kind.available():
        pytest.skip(str(PeerMissing(kind.name)))
    mine = os.sched_getaffinity(0)
    with running(kind, "--appendonly", "no", "--save", "") as store:
        store.fill("s", 1000, ("a", "b"))
        threads = [int(task.name) for task in Path(f"/proc/{store.pid}/task").iterdir()]
        assert [os.sched_getaffinity(thread) for thread in threads] == [{cores()[0]}] * len(threads)
    assert os.sched_getaffinity(0) == mine


def test_a_missing_peer_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.peers.DIRECTORY", Path("nowhere"))
    with measured(KINDS) as stores:
        assert [store.name for store in stores] == [OURS]


def test_a_store_is_prepared_measured_and_emptied() -> None:
    with running(HEADWATER, "--appendonly", "no", "--save", "") as store, store.client() as client:
        # Given entries of which some are pending
        store.fill("s", 2500, ("a", "##"))
        store.deliver("s", "g", 2000)
        assert client.xlen("s") == 2500
        assert client.xpending("s", "g")["pending"] == 2000
        # When work is done, processor time and memory are measured
        sample = store.load("times", 500, 1, 10, requests=[b"*2\r\n$4\r\nXLEN\r\n$1\r\ns\r\n"] * 10)
        assert 0 < sample.server_cpu_seconds <= store.cpu_seconds()
        assert store.resident_bytes() > 2**20
        # Then the store is empty
        store.empty()
        assert client.dbsize() == 0
