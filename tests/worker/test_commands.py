"""The commands that look at groups and mend them, as their users run them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headwater.groups.dead_letters import bury
from headwater.groups.operation import run
from headwater.groups.settling import How, settle
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


def test_a_stream_with_partitions_is_named_by_one_of_them(member: Core, run_headwater: Run) -> None:
    member.client.xadd("moves.{0}", {"v": "a"})
    for command in (["pending"], ["consumers", "list"], ["dead", "list"]):
        group = ["g"] if command[0] == "consumers" else []
        said = run_headwater(*command, "moves", *group, status=1)
        assert "split into partitions" in said
        assert "such as 'moves.{0}'" in said


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


def test_dead_letters_are_json_for_scripts(member: Core, run_headwater: Run) -> None:
    member.client.xadd("s", {"v": "a", "raw": b"\xff"})
    (entry,) = _bury_all(member)
    (listed,) = json.loads(run_headwater("dead", "list", "s", "-o", "json"))
    (shown,) = json.loads(run_headwater("dead", "show", "s", listed["id"], "-o", "json"))
    assert listed == shown
    assert (listed["stream"], listed["group"], listed["entry_id"]) == ("s", "g", entry)
    assert listed["fields"] == [["v", "a"], ["raw", "\\xff"]]
    member.client.delete("{s}.dead")
    assert run_headwater("dead", "list", "s", "-o", "json") == "[]\n"


def test_a_mistyped_id_drops_and_replays_nothing(member: Core, run_headwater: Run) -> None:
    # Given a dead letter
    member.client.xadd("s", {"v": "a"})
    _bury_all(member)
    records: Any = member.client.xrange("{s}.dead")
    letter = records[0][0].decode()

    # When somebody names it and one that is not there, or mistypes an id
    for command in ("replay", "drop"):
        said = run_headwater("dead", command, "s", letter, "1-1", status=1)
        assert "{s}.dead has no dead letter 1-1" in said
    said = run_headwater("dead", "drop", "s", letter, "1526-x", status=1)
    assert "'1526-x' is not the id of a dead letter" in said
    assert "'x' is not the id" in run_headwater("dead", "list", "s", "--after", "x", status=1)

    # Then nothing has happened, and the right id alone is dropped
    assert member.client.xlen("{s}.dead") == 1
    assert run_headwater("dead", "drop", "s", letter) == "1 dropped\n"


def test_what_the_store_refuses_is_said_in_one_line(member: Core, run_headwater: Run) -> None:
    # Given an address with a database that the store does not have, and a key of another type
    url = member.client.connection_pool.connection_kwargs
    address = f"redis://{url['host']}:{url['port']}"
    member.client.set("text", "x")
    for command in (["pending", "s"], ["consumers", "list", "s", "g"], ["dead", "list", "s"]):
        said = run_headwater(*command, "--url", f"{address}/99", status=1)
        assert said == f"headwater: {address}/99 refuses this: DB index is out of range\n"
    bad = f"{address.replace('redis', 'rediss')}?ssl_cert_reqs=bogus"
    said = run_headwater("pending", "s", "--url", bad, status=1)
    assert "cannot be used: Invalid SSL Certificate Requirements Flag: bogus" in said
    assert "Traceback" not in said
    said = run_headwater("pending", "text", status=1)
    assert said.startswith(f"headwater: {address} refuses this: WRONGTYPE")


def test_a_store_that_is_not_there_is_named_without_its_password(run_headwater: Run) -> None:
    url = "redis://ann:secret@localhost:1"
    said = run_headwater("dead", "list", "s", "--url", url, status=1)
    assert "redis://***@localhost:1 cannot be reached" in said
    assert "secret" not in said


def test_pending_answers_why_an_entry_is_stuck(member: Core, run_headwater: Run) -> None:
    # Given an entry in flight, a parked one and one that nobody has read
    for value in ("a", "b"):
        member.client.xadd("s", {"v": value})
    running, failed = member.read()
    member.settle(failed, How.FAIL, delay_ms=600_000)
    unread: Any = member.client.xadd("s", {"v": "c"})

    # Then the table says so, and the JSON document holds the same
    said = run_headwater("pending", "s")
    lines = {line.split()[0]: line for line in said.splitlines()[1:]}
    assert said.startswith("s, group g: 2 pending, 1 unread\n")
    assert f"oldest unread    {unread.decode()}" in said
    assert "in flight" in lines[running.id.decode()]
    assert " one " in lines[running.id.decode()]
    assert "parked" in lines[failed.id.decode()]
    assert "next retry       due in 9 min" in said
    (document,) = json.loads(run_headwater("pending", "s", "g", "-o", "json"))
    assert [one["state"] for one in document["entries"]] == ["in flight", "parked"]
    assert document["claim_after_ms"] == 60_000
    assert "has no group 'x'" in run_headwater("pending", "s", "x", status=1)


def test_consumers_are_listed_and_reaped(member: Core, run_headwater: Run) -> None:
    # Given a consumer that owns an entry and one that owns nothing
    member.client.xadd("s", {"v": "a"})
    member.read()
    member.client.xgroup_createconsumer("s", "g", "two")
    every = ("s", "g", "--unseen", "0s")

    # Then both are listed, and a dry run removes nothing
    found = json.loads(run_headwater("consumers", "list", *every, "-o", "json"))
    assert [(one["name"], one["pending"], one["state"]) for one in found] == [
        ("one", 1, "active"),
        ("two", 0, "expired"),
    ]
    assert "two" in run_headwater("consumers", "reap", *every, "--dry-run")
    assert len(member.client.xinfo_consumers("s", "g")) == 2

    # And only with consent is the one that owns nothing removed
    assert "Remove two from group g of s?" in run_headwater("consumers", "reap", *every, status=1)
    assert len(member.client.xinfo_consumers("s", "g")) == 2
    removed = json.loads(run_headwater("consumers", "reap", *every, "--yes", "-o", "json"))
    assert [one["name"] for one in removed] == ["two"]
    assert len(member.client.xinfo_consumers("s", "g")) == 1
