"""Runs the cases of cases/*.txt on Headwater and on real servers and compares each reply."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from headwater.testing.replies import Failure, Reply
from tests.conformance import cases, differences
from tests.conformance.cases import Case
from tests.conformance.endpoints import HeadwaterEndpoint, PeerEndpoint
from tests.conformance.masks import Circumstances, comparable
from tests.peers import PEERS, Peer

pytestmark = pytest.mark.peer

CASES = cases.all_cases()
ON_SERVERS = [(case, server) for server in PEERS for case in CASES if server in case.servers]


@pytest.fixture
def endpoint(
    shared_peer: Callable[[str], Peer], request: pytest.FixtureRequest
) -> Iterator[PeerEndpoint]:
    case_and_server: tuple[Case, str] = request.param
    made = PeerEndpoint(shared_peer(case_and_server[1]))
    yield made
    made.close()


@pytest.mark.parametrize("resp", [2, 3], ids=["RESP2", "RESP3"])
@pytest.mark.parametrize(
    ("case", "endpoint"),
    [(case, (case, server)) for case, server in ON_SERVERS],
    indirect=["endpoint"],
    ids=[f"{server}-{case.file}: {case.title}" for case, server in ON_SERVERS],
)
def test_headwater_replies_like_the_server(case: Case, endpoint: PeerEndpoint, resp: int) -> None:
    assert not (wrong := disagreements(case, endpoint, resp)), "\n".join(wrong)


def answers(case: Case, side: HeadwaterEndpoint | PeerEndpoint, resp: int) -> list[Reply]:
    """Run a case and return the reply to each line."""
    return side.run(case.history(side.now_ms()), resp=resp)


def disagreements(case: Case, endpoint: PeerEndpoint, resp: int) -> list[str]:
    """Return the lines whose replies differ unexpectedly, or do not differ although they should."""
    hidden = differences.hidden_fields(endpoint.name)
    found = []
    for side in (HeadwaterEndpoint(), endpoint):
        history = case.history(side.now_ms())
        circumstances = Circumstances(side.now_ms(), hidden)
        found.append(comparable(history, answers(case, side, resp), circumstances))
    wrong = []
    for line, ours, theirs in zip(case.lines, *found, strict=True):
        command = b" ".join(line.words).decode(errors="backslashreplace")
        known = line.tag and endpoint.name in differences.LINES[line.tag].servers
        if known and ours == theirs:
            wrong.append(f"line {line.number}: {command}: no longer differs ({line.tag})")
        elif not known and ours != theirs:
            wrong.append(f"line {line.number}: {command}\n    we:   {ours}\n    they: {theirs}")
    return wrong


@pytest.mark.slow
def test_every_case_has_a_reply_that_is_not_an_error() -> None:
    """A case with only errors would pass on a store that implements nothing."""
    for case in CASES:
        endpoint = HeadwaterEndpoint()
        replies = endpoint.run(case.history(endpoint.now_ms()))
        assert not all(isinstance(reply, Failure) for reply in replies), case.title
