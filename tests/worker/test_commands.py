"""The commands that look at groups and mend them, as their users run them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from headwater.groups.dead_letters import bury
from headwater.groups.operation import run
from headwater.groups.settling import settle
from tests.worker.core import Core

pytestmark = pytest.mark.slow

Run = Callable[..., str]

SERVERS = ("headwater", "redis-8.2", "redis-7.0", "valkey-9.1")


@pytest.fixture(params=SERVERS)
def member(
    request: pytest.FixtureRequest,
    store_url: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Core]:
    """A member of group ``g`` of stream ``s`` on each server in turn; ``HEADWATER_URL`` names it."""
    url = store_url(request.param)
    monkeypatch.setenv("HEADWATER_URL", url)
    found = Core.joined(url, claim_after_ms=60_000)
    yield found
    found.close()


def _bury_all(core: Core) -> list[str]:
    """Every new entry becomes a dead letter; the entries' ids."""
    found = core.read()
    for one in found:
        record = bury(
            core.member, "{s}.dead", id=one.id, fields=one.fields, deliveries=1, error="E", at_ms=0
        )
        run(core.client, settle(core.member, [record]))
    return [one.id.decode() for one in found]


def test_dead_names_a_stream_that_does_not_exist(member: Core, run_headwater: Run) -> None:
    said = run_headwater("dead", "list", "ordrs", status=1)
    assert "has no stream 'ordrs'" in said
    assert "--from" in said
    assert "has no stream 'ordrs'" in run_headwater("dead", "replay", "ordrs", "--all", status=1)

    # A stream without dead letters is fine, and prints nothing to parse
    assert run_headwater("dead", "list", "s") == ""


def test_dead_replay_says_what_it_could_not_replay(member: Core, run_headwater: Run) -> None:
    # Given two dead letters, one of an entry that is gone, and another group
    member.client.xadd("s", {"v": "a"})
    member.client.xadd("s", {"v": "b"})
    first, second = _bury_all(member)
    member.client.xgroup_create("s", "h", "$")
    member.client.xdel("s", first)

    # Then the one that can go back does, and the other is named with what would help
    said = run_headwater("dead", "replay", "s", "--all", status=1)
    assert "allow that with --all-groups" in said
    assert "headwater: 1 not replayed" in said
    assert [one.id.decode() for one in member.read()] == [second]

    # And with that it is added again
    assert f"s {first} added again as s " in run_headwater(
        "dead", "replay", "s", "--all", "--all-groups"
    )
    assert member.client.xlen("{s}.dead") == 0


def test_a_store_that_is_not_there_is_named_without_its_password(run_headwater: Run) -> None:
    url = "redis://ann:secret@localhost:1"
    said = run_headwater("dead", "list", "s", "--url", url, status=1)
    assert "redis://***@localhost:1 cannot be reached" in said
    assert "secret" not in said
