"""The commands that inspect and repair groups, run as a user runs them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headwater.groups.protocol.operation import run
from headwater.groups.settling.dead_letters import bury
from headwater.groups.settling.settling import How, settle
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
    """A consumer of group ``g`` of stream ``s`` on each server in turn. ``HEADWATER_URL`` is its address."""
    url = store_url(request.param)
    monkeypatch.setenv("HEADWATER_URL", url)
    found = Core.joined(url, claim_after_ms=60_000)
    yield found
    found.close()


def _dead_letter_all(core: Core) -> list[str]:
    """Make every new entry a dead letter. Returns the ids of the entries."""
    found = core.read()
    for one in found:
        record = bury(
            core.member, "{s}.dead", id=one.id, fields=one.fields, deliveries=1, error="E", at_ms=0
        )
        run(core.client, settle(core.member, [record]))
    return [one.id.decode() for one in found]


def test_the_dead_commands_fail_for_a_stream_that_does_not_exist(
    member: Core, run_headwater: Run
) -> None:
    output = run_headwater("dead", "list", "ordrs", status=1)
    assert "has no stream 'ordrs'" in output
    assert "--from" in output
    assert "has no stream 'ordrs'" in run_headwater("dead", "replay", "ordrs", "--all", status=1)

    # A stream without dead letters is not an error, and the output is empty
    assert run_headwater("dead", "list", "s") == ""


def test_the_error_for_a_partitioned_stream_names_a_partition(
    member: Core, run_headwater: Run
) -> None:
    member.client.xadd("moves.{0}", {"v": "a"})
    for command in (["pending", "list"], ["consumers", "list"], ["dead", "list"]):
        group = ["g"] if command[0] == "consumers" else []
        output = run_headwater(*command, "moves", *group, status=1)
        assert "split into partitions" in output
        assert "such as 'moves.{0}'" in output


def test_dead_replay_lists_what_it_could_not_replay(member: Core, run_headwater: Run) -> None:
    # Given two dead letters, one of them of a deleted entry, and a second group
    member.client.xadd("s", {"v": "a"})
    member.client.xadd("s", {"v": "b"})
    first, second = _dead_letter_all(member)
    member.client.xgroup_create("s", "h", "$")
    member.client.xdel("s", first)

    # When the dead letters are replayed, then one succeeds, and the error for the other names the remedy
    output = run_headwater("dead", "replay", "s", "--all", status=1)
    assert "allow that with --all-groups" in output
    assert "headwater: 1 not replayed" in output
    assert [one.id.decode() for one in member.read()] == [second]

    # And with that option its message is added as a new entry
    assert f"s {first} added again as s " in run_headwater(
        "dead", "replay", "s", "--all", "--all-groups"
    )
    assert member.client.xlen("{s}.dead") == 0


def test_dead_letters_are_json_for_scripts(member: Core, run_headwater: Run) -> None:
    member.client.xadd("s", {"v": "a", "raw": b"\xff"})
    (entry,) = _dead_letter_all(member)
    (listed,) = json.loads(run_headwater("dead", "list", "s", "-o", "json"))
    (shown,) = json.loads(run_headwater("dead", "show", "s", listed["id"], "-o", "json"))
    assert listed == shown
    assert (listed["stream"], listed["group"], listed["entry_id"]) == ("s", "g", entry)
    assert listed["fields"] == [["v", "a"], ["raw", "\udcff"]]
    member.client.delete("{s}.dead")
    assert run_headwater("dead", "list", "s", "-o", "json") == "[]\n"


def test_an_unknown_or_malformed_id_drops_and_replays_nothing(
    member: Core, run_headwater: Run
) -> None:
    # Given a dead letter
    member.client.xadd("s", {"v": "a"})
    _dead_letter_all(member)
    records: Any = member.client.xrange("{s}.dead")
    letter = records[0][0].decode()

    # When the command gets its id and an unknown one, or a malformed id
    for command in ("replay", "drop"):
        output = run_headwater("dead", command, "s", letter, "1-1", status=1)
        assert "{s}.dead has no dead letter 1-1" in output
    output = run_headwater("dead", "drop", "s", letter, "1526-x", status=2)
    assert "'1526-x' is not the id of a dead letter" in output
    assert "'x' is not the id" in run_headwater("dead", "list", "s", "--after", "x", status=2)

    # Then nothing was replayed or dropped, and the correct id alone is dropped
    assert member.client.xlen("{s}.dead") == 1
    assert run_headwater("dead", "drop", "s", letter) == "1 dropped\n"


def test_an_error_of_the_store_is_one_line(member: Core, run_headwater: Run) -> None:
    # Given an address with a database that the store does not have, and a key of another type
    url = member.client.connection_pool.connection_kwargs
    address = f"redis://{url['host']}:{url['port']}"
    member.client.set("text", "x")
    for command in (
        ["pending", "list", "s"],
        ["consumers", "list", "s", "g"],
        ["dead", "list", "s"],
    ):
        output = run_headwater(*command, "--url", f"{address}/99", status=1)
        assert output == f"headwater: {address}/99 refused the request: DB index is out of range\n"
    bad = f"{address.replace('redis', 'rediss')}?ssl_cert_reqs=bogus"
    output = run_headwater("pending", "list", "s", "--url", bad, status=1)
    assert "cannot be used: Invalid SSL Certificate Requirements Flag: bogus" in output
    assert "Traceback" not in output
    output = run_headwater("add", "text", "n=1", status=1)
    assert output.startswith(f"headwater: {address} refused the request: WRONGTYPE")


def test_the_error_for_an_unreachable_store_hides_the_password(run_headwater: Run) -> None:
    url = "redis://ann:secret@localhost:1"
    output = run_headwater("dead", "list", "s", "--url", url, status=1)
    assert "redis://***@localhost:1 cannot be reached" in output
    assert "secret" not in output


def test_pending_shows_why_an_entry_is_not_handled(member: Core, run_headwater: Run) -> None:
    # Given an entry in flight, a delayed one and one that is unread
    for value in ("a", "b"):
        member.client.xadd("s", {"v": value})
    running, failed = member.read()
    member.settle(failed, How.FAIL, delay_ms=600_000)
    unread: Any = member.client.xadd("s", {"v": "c"})

    # Then the table says so, and the JSON document has the same content
    output = run_headwater("pending", "list", "s")
    lines = {line.split()[0]: line for line in output.splitlines()[1:]}
    assert output.startswith("s, group g: 2 pending, 1 unread\n")
    assert f"oldest unread    {unread.decode()}" in output
    assert "in flight" in lines[running.id.decode()]
    assert " one " in lines[running.id.decode()]
    assert "parked" in lines[failed.id.decode()]
    assert "next retry       due in 9 min" in output
    (document,) = json.loads(run_headwater("pending", "list", "s", "g", "-o", "json"))
    assert [one["state"] for one in document["entries"]] == ["in flight", "parked"]
    assert document["claim_after_ms"] == 60_000
    assert "has no group 'x'" in run_headwater("pending", "list", "s", "x", status=1)


def test_consumers_are_listed_and_reaped(member: Core, run_headwater: Run) -> None:
    # Given a consumer that owns an entry and one that owns nothing
    member.client.xadd("s", {"v": "a"})
    member.read()
    member.client.xgroup_createconsumer("s", "g", "two")
    every = ("s", "g", "--unseen", "0s")

    # Then both are listed, and a dry run removes none
    found = json.loads(run_headwater("consumers", "list", *every, "-o", "json"))
    assert [(one["name"], one["pending"], one["state"]) for one in found] == [
        ("one", 1, "active"),
        ("two", 0, "expired"),
    ]
    assert "two" in run_headwater("consumers", "reap", *every, "--dry-run")
    assert len(member.client.xinfo_consumers("s", "g")) == 2

    # And the one that owns nothing is removed only with --yes
    assert "Remove two from group g of s?" in run_headwater("consumers", "reap", *every, status=1)
    assert len(member.client.xinfo_consumers("s", "g")) == 2
    removed = json.loads(run_headwater("consumers", "reap", *every, "--yes", "-o", "json"))
    assert [one["name"] for one in removed] == ["two"]
    assert len(member.client.xinfo_consumers("s", "g")) == 1
