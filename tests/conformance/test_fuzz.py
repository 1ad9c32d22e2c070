"""No malformed request stops or blocks the store, or corrupts its contents."""

from __future__ import annotations

import contextlib
import socket
from random import Random

import pytest

from headwater.testing.node import LocalStore
from headwater.testing.replies import Failure
from headwater.testing.server import server_process
from tests.conformance.fuzzing import Fuzz, corrupt, fill
from tests.conformance.histories import History
from tests.conformance.odd_arguments import FEW, Sweep
from tests.conformance.usages import names, usages
from tests.conformance.wire import connected, encode
from tests.samples import sampled

SLICE_SECONDS = sampled(10)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_unusual_arguments_do_not_break_the_store(seed: int) -> None:
    fuzz = Fuzz(seed)
    fuzz.arguments_round()
    assert fuzz.failures == []


@pytest.mark.parametrize("seed", range(4))
def test_corrupted_bytes_do_not_break_the_store(seed: int) -> None:
    fuzz = Fuzz(seed)
    fuzz.bytes_round()
    assert fuzz.failures == []


@pytest.mark.parametrize("name", [name for name in names() if name.startswith(b"X")])
def test_each_unusual_argument_of_stream_commands_does_not_break_the_store(name: bytes) -> None:
    sweep = Sweep(FEW)
    sweep.command(name)
    assert sweep.failures == []
    assert sweep.requests > 2


@pytest.mark.slow
def test_each_unusual_argument_of_any_command_does_not_break_the_store() -> None:
    sweep = Sweep(FEW)
    sweep.all()
    assert sweep.failures == []
    assert sweep.requests > 20_000


@pytest.mark.slice
@pytest.mark.timeout(300)
def test_all_unusual_values_of_all_arguments_do_not_break_the_store() -> None:
    sweep = Sweep()
    sweep.all()
    assert sweep.failures == []
    assert sweep.requests > 150_000


@pytest.mark.parametrize("name", [name for name in names() if name.startswith(b"X")])
def test_some_of_the_requests_that_are_modified_are_valid(name: bytes) -> None:
    accepted = 0
    for usage in usages(name):
        client = LocalStore(journaled=False).client()
        fill(client)
        client.send(*usage)
        accepted += not isinstance(client.reply(), Failure)
    assert accepted


def test_a_server_survives_corrupted_bytes() -> None:
    # Given a server
    random = Random(1)
    with server_process() as server:
        for seed in range(40):
            # When it receives a corrupted pipeline
            pipeline = b"".join(encode(*words) for words in History(seed, "redis-8.2").commands(50))
            with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
                with contextlib.suppress(ConnectionError):
                    client.sendall(corrupt(random, pipeline))
                    client.shutdown(socket.SHUT_WR)
                    while client.recv(1 << 16):
                        pass
            # Then it still answers other clients
            with connected(server.port) as wire:
                assert wire.ask("PING") == b"+PONG\r\n"


@pytest.mark.slice
def test_seconds_of_malformed_requests_breaks_nothing() -> None:
    fuzz = Fuzz(1000)
    fuzz.rounds(SLICE_SECONDS)
    assert fuzz.failures == []
    assert fuzz.requests > 200 * SLICE_SECONDS
