"""Pending entries can be handed back, claimed, acknowledged and buried from the command line, with a preview."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from headwater.cli.output import OutputFormat
from headwater.cli.pending_actions import Change
from headwater.errors import HeadwaterError
from headwater.groups.protocol.capabilities import Capabilities
from headwater.groups.protocol.operation import Operation
from headwater.groups.reports.pending import GroupInfo, PendingDelivery, PendingState
from headwater.groups.settling.settling import How
from headwater.operations.actions import Done, Selection, _by_owner
from headwater.operations.records import Action
from tests.worker.core import Core, stepped

pytestmark = pytest.mark.slow

Run = Callable[..., str]


def picture(core: Core) -> Any:
    """What a command could change: the pending entries with their owners, and the keys."""
    rows = core.client.xpending_range("s", "g", "-", "+", 100)
    pending = [(row["message_id"], row["consumer"], row["times_delivered"]) for row in rows]
    return pending, sorted(core.client.keys())


def three_pending(core: Core) -> list[str]:
    for value in "abc":
        core.client.xadd("s", {"v": value})
    return [one.id.decode() for one in core.read()]


@pytest.mark.parametrize(
    "words",
    [("release",), ("claim", "--to", "two"), ("ack",), ("bury",)],
    ids=lambda words: str(words[0]),
)
def test_a_dry_run_lists_the_entries_and_changes_nothing(
    core: Core, run_headwater: Run, words: tuple[str, ...]
) -> None:
    ids = three_pending(core)
    before = picture(core)
    printed = run_headwater("pending", words[0], "s", "g", "--all", "--dry-run", *words[1:])
    assert [line.split()[0] for line in printed.splitlines()[1:]] == ids
    assert picture(core) == before


def test_without_a_yes_nothing_is_changed(core: Core, run_headwater: Run) -> None:
    three_pending(core)
    before = picture(core)
    complaint = run_headwater("pending", "ack", "s", "g", "--all", status=1)
    assert "3 entries of group g of s will be acknowledged. Continue?" in complaint
    assert picture(core) == before


def test_entries_that_are_handed_back_are_claimed_by_the_next_reader(
    core: Core, run_headwater: Run
) -> None:
    # Given three entries in flight
    first, second, third = three_pending(core)
    # When two of them are handed back
    output = run_headwater("pending", "release", "s", "g", first, third, "--yes")
    # Then another consumer gets these two at once, with the delivery counts going on
    assert output == "2 handed back\n"
    claimed = core.another("two").read()
    assert [(one.id.decode(), one.delivery_count) for one in claimed] == [(first, 2), (third, 2)]
    assert core.pending(second.encode()) == ("one", 1)


def test_an_entry_that_waits_for_its_retry_can_be_made_due(core: Core, run_headwater: Run) -> None:
    (first, *_others) = three_pending(core)
    core.settle(first.encode(), How.FAIL, delay_ms=3_600_000)
    assert core.another("two").read() == []
    run_headwater("pending", "release", "s", "g", first, "--yes")
    assert [one.id.decode() for one in core.another("three").read()] == [first]


@pytest.mark.parametrize(
    ("word", "said"),
    [("ack", "3 acknowledged"), ("bury", "3 buried"), ("release", "3 handed back")],
)
def test_entries_that_nobody_owns_can_be_settled(
    core: Core, run_headwater: Run, word: str, said: str
) -> None:
    # Given an entry that waits for its retry, one that was handed back, and one in flight
    first, second, _third = three_pending(core)
    core.settle(first.encode(), How.FAIL, delay_ms=3_600_000)
    core.settle(second.encode(), How.SILENT)
    # Then all are settled, none of them twice
    assert run_headwater("pending", word, "s", "g", "--all", "--yes") == f"{said}\n"
    if word == "release":
        assert len(core.another("two").read()) == 3
    else:
        assert core.nothing_pending()
    letters = json.loads(run_headwater("dead", "list", "s", "-o", "json"))
    assert len(letters) == (3 if word == "bury" else 0)


def test_many_entries_are_buried_a_few_megabytes_at_a_time(core: Core, run_headwater: Run) -> None:
    # Given entries of different sizes, of which one was deleted
    for n in range(60):
        core.client.xadd("s", {"v": bytes(1_000_000 if n % 20 == 0 else 10), "n": n})
    found = core.read(60)
    core.client.xdel("s", found[30].id)
    # When all are buried
    said = run_headwater("pending", "bury", "s", "g", "--all", "--yes", status=1)
    # Then each has its dead letter, but for the deleted one
    assert "1 not buried" in said
    letters = json.loads(run_headwater("dead", "list", "s", "-o", "json"))
    assert [one["entry_id"] for one in letters] == [
        one.id.decode() for one in found if one is not found[30]
    ]
    assert core.client.xpending("s", "g")["pending"] == 1


def test_only_entries_that_fit_all_filters_are_claimed(core: Core, run_headwater: Run) -> None:
    # Given entries of two consumers
    mine = three_pending(core)
    core.client.xadd("s", {"v": "d"})
    (other,) = core.another("two").read()
    # When those of one of them are given to a third
    output = run_headwater("pending", "claim", "s", "g", "--consumer", "two", "--to", "c", "--yes")
    # Then only those are
    assert output == "1 given to c\n"
    assert core.pending(other.id) == ("c", 1)
    assert {core.pending(one.encode())[0] for one in mine} == {"one"}
    assert run_headwater("pending", "ack", "s", "g", "--deliveries", "5", "--yes") == (
        "no pending entry matches\n"
    )


def test_acknowledged_entries_are_no_longer_pending(core: Core, run_headwater: Run) -> None:
    ids = three_pending(core)
    done = json.loads(run_headwater("pending", "ack", "s", "g", "--all", "--yes", "-o", "json"))
    assert done == [{"id": one, "done": True, "reason": ""} for one in ids]
    assert core.nothing_pending()


def test_an_entry_that_another_consumer_has_claimed_since_is_left_alone(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a preview of an entry, which another consumer claims afterwards
    from headwater.groups.protocol.operation import run
    from headwater.groups.reports.pending import groups
    from headwater.operations import actions

    (first, *_others) = three_pending(core)
    rows = run(core.client, actions.select_in("s", "g", actions.Selection([first])))
    core.client.xclaim("s", "g", "two", 0, [first])
    # When it is acknowledged as it was seen
    (of,) = run(core.client, groups("s", "g"))
    (done,) = run(core.client, actions.acknowledge(of, rows))
    # Then it stays with its new owner
    assert not done.done
    assert "claimed or settled it meanwhile" in done.reason
    assert core.pending(first.encode())[0] == "two"


def test_who_did_what_is_recorded(core: Core, run_headwater: Run) -> None:
    (first, *_others) = three_pending(core)
    run_headwater("pending", "ack", "s", "g", first, "--yes")
    records: Any = core.client.xrange("{s}:hw:actions")
    ((_id, found),) = records
    fields = {name.decode(): value.decode() for name, value in found.items()}
    assert fields == {
        "user": "default",
        "action": "acknowledge",
        "group": "g",
        "to": "",
        "entries": "1",
        "refused": "0",
        "first": first,
    }


def test_a_user_without_the_right_to_ask_is_recorded_by_name(
    core: Core, url: str, run_headwater: Run
) -> None:
    # Given a user who may do anything to streams, and nothing else
    core.client.acl_setuser(
        "ann", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-@admin", "-acl"]
    )
    (first, *_others) = three_pending(core)
    address = url.replace("redis://", "redis://ann:any@")
    # When they act, then the record has their name
    run_headwater("pending", "ack", "s", "g", first, "--yes", "--url", address)
    run_headwater("consumers", "reap", "s", "g", "--unseen", "0s", "--yes", "--url", address)
    run_headwater("streams", "trim", "s", "--maxlen", "1", "--yes", "--url", address)
    records: Any = core.client.xrange("{s}:hw:actions")
    assert [one[b"user"] for _id, one in records] == [b"ann"] * len(records)
    assert [one[b"action"] for _id, one in records][-1] == b"trim"


def test_an_action_that_cannot_be_recorded_says_so(
    core: Core, url: str, run_headwater: Run, caplog: pytest.LogCaptureFixture
) -> None:
    core.client.acl_setuser(
        "bob", enabled=True, nopass=True, keys=["s", "{s}:hw:group:*", "{s}:hw:delays:*"]
    )
    core.client.execute_command("ACL", "SETUSER", "bob", "+@all", "~{s}:hw:poison:*")
    (first, *_others) = three_pending(core)
    address = url.replace("redis://", "redis://bob:any@")
    assert run_headwater("pending", "ack", "s", "g", first, "--yes", "--url", address) == (
        "1 acknowledged\n"
    )
    assert "not recorded in {s}:hw:actions" in caplog.text


def test_what_was_done_before_a_refusal_is_reported_and_recorded(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given entries that are acknowledged one at a time
    from headwater.groups.protocol.operation import run
    from headwater.groups.reports.pending import groups
    from headwater.operations import actions

    monkeypatch.setattr(actions, "PAGE", 1)
    ids = three_pending(core)
    rows = run(core.client, actions.select_in("s", "g", actions.Selection()))
    (of,) = run(core.client, groups("s", "g"))

    # When the server refuses the second one
    def meanwhile(_step: int, _commands: object) -> None:
        groups: Any = core.client.xinfo_groups("s")
        if [one["pending"] for one in groups] == [2]:
            core.client.xgroup_destroy("s", "g")

    done = run(core.client, stepped(actions.acknowledge(of, rows), meanwhile))
    # Then the first one is reported as done, with the others' reason, and recorded
    assert [(one.id, one.done) for one in done] == [
        (ids[0], True),
        (ids[1], False),
        (ids[2], False),
    ]
    assert "NOGROUP" in done[1].reason
    records: Any = core.client.xrange("{s}:hw:actions")
    ((_id, record),) = records
    assert (record[b"entries"], record[b"refused"]) == (b"1", b"2")


def test_what_was_done_before_the_store_was_lost_is_said(core: Core) -> None:
    # Given an action that loses its connection after the first of three entries
    three_pending(core)

    def act(
        _of: GroupInfo, rows: Sequence[PendingDelivery], done: list[Done]
    ) -> Operation[list[Done]]:
        done.append(Done(rows[0].id, True))
        yield [["PING"]]
        raise HeadwaterError("the store cannot be reached")

    address = core.client.connection_pool.connection_kwargs
    url = f"redis://{address['host']}:{address['port']}"
    change = Change("s", "g", Selection(), "acknowledged", False, True, OutputFormat.TABLE, url)
    # Then the error says how much was done
    said = "at least 1 of 3 entries acknowledged, then: the store cannot"
    with pytest.raises(HeadwaterError, match=said):
        change.carry_out(act, Action.ACKNOWLEDGE)
    # And it is recorded
    assert recorded(core) == [("acknowledge", "1")]


def test_what_was_done_before_ctrl_c_is_said_and_recorded(
    core: Core, capsys: pytest.CaptureFixture[str]
) -> None:
    # Given an action in which Ctrl-C is pressed after the first of three entries
    three_pending(core)

    def act(
        _of: GroupInfo, rows: Sequence[PendingDelivery], done: list[Done]
    ) -> Operation[list[Done]]:
        done.append(Done(rows[0].id, True))
        yield [["PING"]]
        raise KeyboardInterrupt

    address = core.client.connection_pool.connection_kwargs
    url = f"redis://{address['host']}:{address['port']}"
    change = Change("s", "g", Selection(), "buried", False, True, OutputFormat.TABLE, url)
    with pytest.raises(KeyboardInterrupt):
        change.carry_out(act, Action.BURY)
    # Then it says how much was done at least, and this is recorded
    assert capsys.readouterr().err == "at least 1 of 3 entries buried\n"
    assert recorded(core) == [("bury", "1")]


def recorded(core: Core) -> list[tuple[str, str]]:
    """The recorded actions, each with its number of entries."""
    found: Any = core.client.xrange("{s}:hw:actions")
    return [(one[b"action"].decode(), one[b"entries"].decode()) for _id, one in found]


def test_a_mistyped_selection_is_an_error_that_says_what_to_write(
    core: Core, run_headwater: Run
) -> None:
    three_pending(core)
    before = picture(core)
    for words, said in (
        ((), "nothing is selected"),
        (("--all", "1-0"), "--all selects everything"),
        (("x",), "'x' is not the id of an entry"),
        (("--idle", "ten"), "duration='ten' is not a duration"),
    ):
        assert said in run_headwater("pending", "ack", "s", "g", *words, "--yes", status=2)
    assert "no group 'x'" in run_headwater("pending", "ack", "s", "x", "--all", status=1)
    assert "no stream 'x'" in run_headwater("pending", "ack", "x", "g", "--all", status=1)
    assert picture(core) == before


def test_one_pending_entry_is_shown_with_its_fields(core: Core, run_headwater: Run) -> None:
    (first, *_others) = three_pending(core)
    assert "v = a" in run_headwater("pending", "show", "s", "g", first)
    (document,) = json.loads(run_headwater("pending", "show", "s", "g", first, "-o", "json"))
    assert (document["id"], document["fields"]) == (first, [["v", "a"]])
    assert "is not pending in group g" in run_headwater(
        "pending", "show", "s", "g", "9-9", status=1
    )


def test_retries_are_listed_and_run(core: Core, run_headwater: Run) -> None:
    # Given two entries that wait for their retry, and one in flight
    first, second, third = three_pending(core)
    core.settle(first.encode(), How.FAIL, delay_ms=7_200_000)
    core.settle(second.encode(), How.FAIL, delay_ms=3_600_000)
    # Then only these are listed, with their due times
    found = json.loads(run_headwater("retries", "list", "s", "g", "-o", "json"))
    assert {one["id"]: one["due_ms"] // 3_500_000 for one in found} == {first: 2, second: 1}
    assert {one["deliveries"] for one in found} == {1}
    assert "1 h 59 min" in run_headwater("retries", "list", "s", "g")
    listed = run_headwater("retries", "list", "s", "g", "--count", "1")
    assert "at most 1 are listed; there may be more (--count)" in listed
    # When one is run, then it is delivered, and with --all the other one too
    assert core.another("two").read() == []
    assert run_headwater("retries", "run", "s", "g", second, "--yes") == "1 made due\n"
    assert [one.id.decode() for one in core.another("two").read()] == [second]
    assert run_headwater("retries", "run", "s", "g", "--all", "--yes") == "1 made due\n"
    assert [one.id.decode() for one in core.another("three").read()] == [first]
    assert run_headwater("retries", "run", "s", "g", "--all") == "no entry waits for a retry\n"
    assert run_headwater("retries", "run", "s", "g", "--all", "-o", "json") == "[]\n"
    assert "id,owner," in run_headwater("retries", "run", "s", "g", "--all", "-o", "csv")
    assert "name ids, or use --all" in run_headwater("retries", "run", "s", "g", status=2)
    assert core.pending(third.encode()) == ("one", 1)


def test_entries_of_many_owners_are_sorted_by_owner_in_one_pass() -> None:
    # Given entries of a thousand consumers
    class Rows(list[PendingDelivery]):
        passes = 0

        def __iter__(self) -> Iterator[PendingDelivery]:
            Rows.passes += 1
            return super().__iter__()

    rows = Rows(
        PendingDelivery(
            id=f"{n}-0",
            owner=f"c{n % 1000}",
            age_ms=0,
            idle_ms=0,
            deliveries=1,
            state=PendingState.IN_FLIGHT,
            due_ms=None,
        )
        for n in range(3000)
    )
    able = Capabilities(verbs=True, cluster=False, server="")
    of = GroupInfo("s", "g", {}, 0, able)
    # When they are split by owner, then they are read once: 100,000 took 41 s by a pass for each
    found = {owner: [one.id for one in part] for owner, part in _by_owner(of, rows)}
    assert found["c7"] == ["7-0", "1007-0", "2007-0"]
    assert (len(found), Rows.passes) == (1000, 1)
