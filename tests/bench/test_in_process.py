"""Measurements without a network: each subject counts the entries that its stream has."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from benchmarks import in_process
from tests.peers import Peer


@pytest.mark.slow
@pytest.mark.parametrize("subject", ["node", "node-100", "burner", "burner-100", "client", "fake"])
def test_a_subject_in_this_process_counts_its_entries(subject: str) -> None:
    try:
        operations, seconds = in_process.measure(subject, 0.01, "")
    except in_process.Missing as why:
        pytest.skip(str(why))
    assert operations >= 100
    assert seconds >= 0.01


@pytest.mark.peer
def test_redis_at_a_unix_socket_counts_its_entries(shared_peer: Callable[[str], Peer]) -> None:
    peer = shared_peer("redis-8.2")
    operations, _ = in_process.measure("socket", 0.01, str(peer.unixsocket))
    assert operations >= 100


def test_a_library_that_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "burner_redis", None)
    monkeypatch.setattr("sys.argv", ["in_process", "burner", "0.01"])
    assert in_process.main() == 0
    assert capsys.readouterr().out == '{"missing": "burner-redis is not installed"}\n'
