"""The server's replies over its socket equal those of the store in this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater.testing.server import server_process
from tests.conformance import cases
from tests.conformance.cases import Case
from tests.conformance.endpoints import HeadwaterEndpoint, PeerEndpoint
from tests.conformance.histories import History
from tests.conformance.masks import Circumstances, comparable


@pytest.fixture(scope="module")
def server() -> Iterator[PeerEndpoint]:
    with server_process("--appendfsync", "no") as process:
        endpoint = PeerEndpoint(process, name="headwater")
        yield endpoint
        endpoint.close()


def same(history: list[tuple[bytes, ...]], server: PeerEndpoint, resp: int) -> None:
    local = HeadwaterEndpoint()
    found = [
        comparable(history, side.run(history, resp=resp), Circumstances(side.now_ms()))
        for side in (local, server)
    ]
    for command, ours, theirs in zip(history, *found, strict=True):
        assert theirs == ours, command


CASES = [
    # Replies to wrong passwords are delayed increasingly.
    pytest.param(case, marks=pytest.mark.slow) if case.file == "acl" else case
    for case in cases.all_cases()
]


@pytest.mark.parametrize("resp", [2, 3], ids=["RESP2", "RESP3"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.file}: {case.title}")
def test_a_written_case_gives_the_same_replies(case: Case, resp: int, server: PeerEndpoint) -> None:
    same(case.history(server.now_ms()), server, resp)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_random_history_gives_the_same_replies(seed: int, server: PeerEndpoint) -> None:
    same(History(seed, "redis-8.2").commands(1000), server, 3)
