"""`headwater explain` names each cause why a group is stuck, on each kind of server, and the command that ends it."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis

from headwater.cli.output import UNHEALTHY
from headwater.groups.membership.consumers import ConsumerInfo, ConsumerState
from headwater.groups.protocol.operation import run
from headwater.groups.reading.poison import Record, write
from headwater.groups.reports.early_claims import note_early
from headwater.groups.reports.pending import SILENT_MS
from headwater.groups.settling.settling import How
from headwater.operations.causes import causes
from headwater.operations.explaining import Explanation, explained, gone_groups, look
from tests.command_line import in_thread
from tests.waiting import eventually
from tests.worker.core import CLAIM_AFTER_MS, Core

pytestmark = pytest.mark.slow

Run = Callable[..., str]


def answers(*words: str) -> list[dict[str, Any]]:
    """Run ``headwater explain`` and return what it says. The status says whether something is wrong."""
    status, printed, complaint = in_thread(["explain", *words, "-o", "json"])
    assert status in (0, UNHEALTHY), complaint
    found: list[dict[str, Any]] = json.loads(printed)
    wrong = [cause for one in found for cause in one["causes"] if not cause["normal"]]
    assert (status == UNHEALTHY) == bool(wrong)
    return found


def explain(group: str = "g", window: str = "0s") -> list[dict[str, Any]]:
    """Return the causes why a group of stream ``s`` is stuck."""
    (answer,) = answers("s", group, "--window", window)
    found: list[dict[str, Any]] = answer["causes"]
    return found


def claimed_after(core: Core, ms: int) -> None:
    """Let the workers of the group have announced this ``claim_after``."""
    core.client.hset("{s}:hw:group:g", "claim_after_ms", ms)


def named_causes(answer: Explanation) -> list[str]:
    return [str(one.name) for one in answer.causes]


def named(causes: list[dict[str, Any]]) -> list[str]:
    return [one["name"] for one in causes]


def do(core: Core, run_headwater: Run, cause: dict[str, Any]) -> None:
    """Run the command that a cause shows."""
    if cause["server"]:
        core.client.execute_command(*cause["server"])
    else:
        program, *words = shlex.split(cause["fix"])
        assert program == "headwater"
        run_headwater(*words, "--yes")


def test_a_group_that_works_is_healthy(core: Core) -> None:
    # Given an entry in flight, one that was just added, and one whose retry is due soon
    for value in "abc":
        core.client.xadd("s", {"v": value})
    first, second = core.read(2)
    core.settle(second, How.FAIL, delay_ms=9_000)
    # Then no cause is named
    assert explain() == []
    assert first.id


def test_a_dead_consumer_is_named_and_its_entries_can_be_handed_back(
    core: Core, run_headwater: Run
) -> None:
    # Given a consumer that has read two entries and was not seen since, and a worker that reads
    claimed_after(core, 400)
    for value in "ab":
        core.client.xadd("s", {"v": value})
    ids = [one.id.decode() for one in core.read()]
    eventually(lambda: "dead consumer" in named(explain()), "the consumer counts as silent")
    # When the command that explain shows is run
    (cause, *_others) = explain()
    assert cause["name"] == "dead consumer"
    assert cause["entries"] == ids
    assert "consumer one owns 2 entries" in cause["statement"]
    listed = json.loads(run_headwater("consumers", "list", "s", "g", "-o", "json"))
    assert {one["name"]: one["state"] for one in listed}["one"] == "silent"
    do(core, run_headwater, cause)
    # Then the dead consumer owns nothing, and another one gets the entries
    assert "dead consumer" not in named(explain())
    found = eventually(lambda: core.another("two").read(), "the entries are claimed")
    assert [one.id.decode() for one in found] == ids


def test_entries_that_nobody_claims_are_named_and_can_be_given_to_a_reader(
    core: Core, run_headwater: Run
) -> None:
    # Given an overdue entry of a consumer that is gone, and a consumer that reads but does not claim
    claimed_after(core, 100)
    core.client.xadd("s", {"v": "a"})
    (entry,) = core.read()
    eventually(lambda: "nobody claims" in named(explain()), "the entry is overdue")
    core.client.xreadgroup("g", "reader", {"s": ">"}, count=1)
    # When explain's command for it is run
    (cause,) = [one for one in explain() if one["name"] == "nobody claims"]
    assert cause["entries"] == [entry.id.decode()]
    do(core, run_headwater, cause)
    # Then the reader owns it
    (row,) = core.client.xpending_range("s", "g", "-", "+", 1)
    assert row["consumer"] == b"reader"


def test_a_group_that_nobody_reads_is_named(core: Core) -> None:
    # Given a group without consumers, of which no worker ever said that it runs, and an entry of an hour ago
    core.client.xgroup_create("s", "idle", "0")
    old = int(time.time() * 1000) - 3_600_000
    core.client.xadd("s", {"v": "a"}, id=f"{old}-0")
    # Then explain says so, and that a worker is needed
    (cause,) = explain("idle")
    assert cause["name"] == "nobody reads"
    assert (
        "1 entry is unread, the oldest for 1 h 0 min, and no consumer was ever seen"
        in (cause["statement"])
    )
    assert "start a worker of group idle" in cause["statement"]


def test_a_suspected_poison_message_is_named_and_can_be_buried(
    core: Core, run_headwater: Run
) -> None:
    # Given a message that was in flight in two processes that died
    core.client.xadd("s", {"v": "a"})
    (entry,) = core.read()
    run(core.client, write(core.member, {entry.id: Record(excused=2)}))
    # When explain's command is run
    (cause,) = [one for one in explain() if one["name"] == "poison"]
    assert cause["entries"] == [entry.id.decode()]
    do(core, run_headwater, cause)
    # Then it is a dead letter with its fields, no longer pending, and not explained any more
    assert explain() == []
    (letter,) = json.loads(run_headwater("dead", "list", "s", "-o", "json"))
    assert (letter["entry_id"], letter["fields"]) == (entry.id.decode(), [["v", "a"]])
    assert letter["error"] == "buried by an operator"


def test_entries_that_were_claimed_too_early_are_named(core: Core) -> None:
    # Given an entry that two workers have lost while they ran it, and one that was lost once
    core.client.xadd("s", {"v": "a"})
    core.client.xadd("s", {"v": "b"})
    first, second = core.read()
    for lost in ([first.id, second.id], [first.id]):
        run(core.client, note_early(core.member, lost))
    # Then the former is named
    (cause,) = explain()
    assert (cause["name"], cause["entries"]) == ("claimed too early", [first.id.decode()])
    assert "claimed up to 2 times" in cause["statement"]


def test_pending_entries_that_were_deleted_are_named(core: Core) -> None:
    # Given a pending entry that was deleted, and one that was not
    for value in "ab":
        core.client.xadd("s", {"v": value})
    gone, _there = core.read()
    core.client.xdel("s", gone.id)
    # Then the deleted one is named
    (cause,) = [one for one in explain() if one["name"] == "gone"]
    assert (cause["entries"], cause["fix"]) == ([gone.id.decode()], "")


def test_entries_that_were_trimmed_unread_are_counted(core: Core) -> None:
    # Given a group that has read one of ten entries, of which seven are trimmed
    for value in range(10):
        core.client.xadd("s", {"v": value})
    core.settle(core.read(1)[0])
    core.client.xtrim("s", maxlen=3, approximate=False)
    # Then at least six are lost for it
    (cause,) = [one for one in explain() if one["name"] == "trimmed unread"]
    assert "at least 6 entries" in cause["statement"]


def test_a_worker_that_does_not_keep_up_is_slow(core: Core) -> None:
    # Given entries of an hour ago, and a consumer that reads
    old = int(time.time() * 1000) - 3_600_000
    for n in range(3):
        core.client.xadd("s", {"v": n}, id=f"{old}-{n + 1}")
    core.settle(core.read(1)[0])
    # When the group is observed for a while, in which the oldest unread entry stays the same
    found = explain(window="200ms")
    # Then it is slow; one look cannot tell that
    assert named(found) == ["slow"]
    assert "2 entries are unread, the oldest for 1 h 0 min" in found[0]["statement"]
    assert explain() == []


def test_a_retry_in_the_far_future_is_named_and_healthy(core: Core, run_headwater: Run) -> None:
    core.client.xadd("s", {"v": "a"})
    (entry,) = core.read()
    core.settle(entry, How.FAIL, delay_ms=7_200_000)
    (cause,) = explain()
    assert (cause["name"], cause["entries"]) == ("delayed", [entry.id.decode()])
    assert "1 entry" in cause["statement"]
    assert "for 1 h 59 min" in cause["statement"]
    for words in (("s",), ("s", "g"), ("s", "g", entry.id.decode()), ()):
        assert "not healthy" not in run_headwater("explain", *words, "--window", "0s")


def test_many_consumers_that_have_stopped_are_named(core: Core, run_headwater: Run) -> None:
    # Given a group of which two consumers own nothing, and five thousand
    core.another("two").read()
    (seen,) = run(core.client, look("s"))
    stopped = ConsumerInfo("worker-1", 0, 3_600_000, ConsumerState.SILENT)
    few = seen._replace(consumers=[stopped] * 2)
    many = seen._replace(consumers=[stopped] * 5_000)
    # Then only the latter is not healthy
    assert causes(few) == []
    (cause,) = causes(many)
    assert (cause.name, cause.normal) == ("unused consumers", False)
    assert "5,000 consumers own nothing" in cause.statement
    _program, *words = shlex.split(cause.fix)
    run_headwater(*words, "--yes")


def test_a_group_that_ceases_to_exist_is_named(core: Core, run_headwater: Run) -> None:
    # Given a group with workers, and one of another program
    core.client.xgroup_create("s", "other", "0")
    before = run(core.client, look("s"))
    # When both are destroyed between two looks
    core.client.delete("s")
    core.client.xgroup_create("s", "new", "0", mkstream=True)
    found = explained(run(core.client, look("s")), before)
    # Then they are named, and the new one is healthy
    assert {one.group: named_causes(one) for one in found} == {
        "new": [],
        "g": ["the group is gone"],
        "other": ["the group is gone"],
    }


@pytest.mark.parametrize("words", [(), ("s",)])
def test_a_group_that_is_gone_although_its_workers_were_seen_is_named(
    core: Core, words: tuple[str, ...]
) -> None:
    # Given a group, whose workers were seen, and which was destroyed
    core.client.xgroup_create("s", "other", "0")
    core.client.xgroup_destroy("s", "g")
    # Then it is named until its settings are deleted, or its workers were not seen for a day
    (gone,) = [one for one in answers(*words, "--window", "0s") if one["group"] == "g"]
    assert named(gone["causes"]) == ["the group is gone"]
    assert "a worker was seen" in gone["causes"][0]["statement"]
    core.client.hset("{s}:hw:group:g", "seen_at", int(time.time() * 1000) - 25 * 3_600_000)
    assert [one["group"] for one in answers(*words, "--window", "0s")] == ["other"]


def test_a_group_that_a_user_may_not_see_is_not_said_to_be_gone(
    core: Core, url: str, run_headwater: Run
) -> None:
    # Given a user without the right to a stream, but to what is stored with it
    core.client.acl_setuser(
        "eve", True, nopass=True, keys=["{s}:*", "mine"], commands=["+@all"], reset=True
    )
    core.client.xgroup_create("mine", "g", "0", mkstream=True)
    found = answers("mine", "--url", url.replace("redis://", "redis://eve:any@"), "--window", "0s")
    assert [one["stream"] for one in found] == ["mine"]
    # When the settings of that group are looked at, then nothing is said about it
    with redis.Redis.from_url(url, username="eve", password="any") as eve:
        assert run(eve, gone_groups([("mine", "g")])) == []


def test_a_stream_that_is_gone_although_workers_were_seen_is_named(
    core: Core, run_headwater: Run
) -> None:
    core.client.delete("s")
    (gone,) = answers("--window", "0s")
    assert (gone["stream"], gone["group"], named(gone["causes"])) == (
        *("s", "g"),
        ["the group is gone"],
    )
    assert "there is no stream 's'" in run_headwater("explain", "s", status=1)


@pytest.mark.parametrize("announced", [True, False])
def test_pending_and_explain_agree_on_what_can_be_claimed(
    core: Core, run_headwater: Run, announced: bool
) -> None:
    # Given an entry that was idle for a little less than `claim_after`, and one for longer
    if not announced:
        core.client.delete("{s}:hw:group:g")
    after = CLAIM_AFTER_MS if announced else SILENT_MS
    for value in "ab":
        core.client.xadd("s", {"v": value})
    young, old = core.read()
    for entry, idle in ((young, after - 10_000), (old, after + 1_000)):
        core.client.xclaim("s", "g", "one", 0, [entry.id], idle=idle, justid=True)
    # Then both commands say so
    (found,) = json.loads(run_headwater("pending", "list", "s", "-o", "json"))
    states = {one["id"]: one["state"] for one in found["entries"]}
    assert states == {young.id.decode(): "in flight", old.id.decode(): "claimable"}
    for entry, doing in ((young, "(active)"), (old, "(silent)")):
        (explained_entry,) = answers("s", "g", entry.id.decode())
        assert doing in explained_entry["statement"]


def test_all_groups_are_explained_and_healthy_ones_only_counted(
    core: Core, run_headwater: Run
) -> None:
    # Given many groups, of which one has a pending entry that was deleted
    pipe = core.client.pipeline(transaction=False)
    for n in range(250):
        pipe.xgroup_create(f"many.{n}", "g", "0", mkstream=True)
    pipe.execute()
    core.client.xadd("s", {"v": "a"})
    (entry,) = core.read()
    core.client.xdel("s", entry.id)
    # When all are explained
    printed = run_headwater("explain", "--window", "0s", status=UNHEALTHY)
    # Then the one is described, and the others are counted
    lines = printed.splitlines()
    assert lines[0] == "250 groups are healthy"
    assert lines[1].startswith("s, group g: not healthy.")
    found = answers("--window", "0s")
    assert len(found) == 251
    assert [one["stream"] for one in found if one["causes"]] == ["s"]


# --- one entry ------------------------------------------------------------------------------------


def test_an_entry_is_explained_wherever_it_is(core: Core, run_headwater: Run) -> None:
    # Given entries that are acknowledged, delayed, in flight, unread and deleted
    for value in "abcde":
        core.client.xadd("s", {"v": value})
    done, later, running = core.read(3)
    core.settle(done)
    core.settle(later, How.FAIL, delay_ms=9_000)
    rest: Any = core.client.xrange("s", b"(" + running.id)
    unread, deleted = (entry[0] for entry in rest)
    core.client.xdel("s", deleted)

    def state(entry_id: bytes) -> tuple[str, str]:
        (found,) = answers("s", "g", entry_id.decode())
        return found["state"], found["statement"]

    # Then each is explained
    assert state(done.id)[0] == "settled"
    assert state(running.id)[0] == "pending"
    assert "consumer one (active) owns it" in state(running.id)[1]
    assert state(later.id) == ("pending", "it waits for its retry, after 1 delivery")
    assert state(unread)[0] == "unread"
    assert "deleted or trimmed before the group read it" in state(deleted)[1]
    (waiting,) = answers("s", "g", later.id.decode())
    assert named(waiting["causes"]) == ["delayed"]
