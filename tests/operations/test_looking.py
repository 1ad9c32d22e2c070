"""`streams`, `groups`, `lag`, `tail` and `add` show what a store has, as a table, as JSON and as CSV."""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from headwater.groups.protocol.operation import run
from headwater.groups.settling.settling import How
from headwater.groups.settling.ticks import add_ticks, declare_rule
from headwater.operations.entries import PAGE, Condition, TextEntry, last
from tests.worker.core import Core, stepped

pytestmark = pytest.mark.slow

Run = Callable[..., str]

NO_TICKS = {"schedule": None, "last_tick_ms": None, "next_tick_ms": None}


def test_streams_are_listed_without_those_that_headwater_stores(
    core: Core, run_headwater: Run
) -> None:
    # Given a stream with a group that has read two of three entries, another one, and a key of another type
    for value in "abc":
        core.client.xadd("s", {"v": value})
    core.read(2)
    core.client.xadd("orders.eu", {"v": 1})
    core.client.xadd("{s}:hw:later", {"v": 1})
    core.client.set("text", "x")
    # Then
    found = json.loads(run_headwater("streams", "list", "-o", "json"))
    assert found == [
        {
            "stream": "orders.eu",
            "entries": 1,
            "groups": 0,
            "pending": 0,
            "unread": None,
            **NO_TICKS,
        },
        {"stream": "s", "entries": 3, "groups": 1, "pending": 2, "unread": 1, **NO_TICKS},
    ]
    table = run_headwater("streams", "list", "orders.*").splitlines()
    assert [line.split() for line in table] == [
        ["STREAM", "ENTRIES", "GROUPS", "PENDING", "UNREAD"],
        ["orders.eu", "1", "0", "0", "-"],
    ]


def test_a_schedule_is_shown_with_its_last_and_next_tick(core: Core, run_headwater: Run) -> None:
    # Given a schedule whose last tick was an hour ago
    client, minute = core.client, 60_000
    seconds, _micros = client.time()
    now = seconds * 1_000
    run(client, declare_rule("shop.sweep", "every 2h"))
    client.xgroup_create("shop.sweep", "ticks", "$", mkstream=True)
    run(client, add_ticks("shop.sweep", [], maxlen=10, next_ms=now + 60 * minute))
    table = run_headwater("streams", "list", "shop.*").splitlines()
    assert table[-1].startswith("shop.sweep: every 2h: no tick yet, next in 59 min")
    tick = (now - 60 * minute, [(b"time", b"x")])
    run(client, add_ticks("shop.sweep", [tick], maxlen=10, next_ms=now + 60 * minute))

    # Then the list of streams and `explain` have it
    (found,) = json.loads(run_headwater("streams", "list", "shop.*", "-o", "json"))
    assert found["schedule"] == "every 2h"
    assert 60 * minute <= found["last_tick_ms"] < 62 * minute
    assert 58 * minute < found["next_tick_ms"] <= 60 * minute
    client.xgroup_setid("shop.sweep", "ticks", "$")
    (why,) = json.loads(run_headwater("explain", "shop.sweep", "--window", "0s", "-o", "json"))
    assert why["health"] == "healthy"
    (cause,) = why["causes"]
    assert (cause["name"], cause["normal"]) == ("schedule", True)
    assert cause["statement"].startswith("every 2h: last tick 1 h 0 min ago, next in 59 min")

    # And a tick that nobody adds is named
    run(client, add_ticks("shop.sweep", [], maxlen=10, next_ms=now - 10 * minute))
    (why,) = json.loads(
        run_headwater("explain", "shop.sweep", "--window", "0s", "-o", "json", status=3)
    )
    (cause,) = why["causes"]
    assert (why["health"], cause["name"]) == ("not healthy", "no ticks")
    assert "the next was due 10 min" in cause["statement"]
    table = run_headwater("streams", "list", "shop.*").splitlines()
    assert "the next was due 10 min" in table[-1]


def test_groups_are_listed_with_their_lag_in_entries_and_time(
    core: Core, run_headwater: Run
) -> None:
    # Given an entry that waits for a retry, one in flight, and an unread one of an hour ago
    old = int(time.time() * 1000) - 3_600_000
    for n in range(3):
        core.client.xadd("s", {"v": n}, id=f"{old}-{n}")
    first, _second = core.read(2)
    core.settle(first, How.FAIL, delay_ms=600_000)
    # Then
    (found,) = json.loads(run_headwater("groups", "list", "s", "-o", "json"))
    assert 3_600_000 <= found.pop("lag_ms") < 3_700_000
    assert 3_600_000 <= found.pop("oldest_pending_ms") < 3_700_000
    consumers = found.pop("consumers")
    assert consumers in (1, 2)  # the delayed entry has an owner on Redis
    assert found == {"stream": "s", "group": "g", "pending": 2, "unread": 1, "delayed": 1}
    # And lag compares it with a bound
    assert "1 h 0 min" in run_headwater("lag", "s", "--max", "2h")
    assert "1 h 0 min" in run_headwater("lag", "s", "--max", "30s", status=3)
    rows = list(csv.DictReader(io.StringIO(run_headwater("lag", "s", "g", "-o", "csv"))))
    assert [(row["group"], row["unread"]) for row in rows] == [("g", "1")]


def test_a_group_without_unread_entries_has_no_lag(core: Core, run_headwater: Run) -> None:
    core.client.xadd("s", {"v": "a"})
    (entry,) = core.read()
    core.settle(entry)
    (found,) = json.loads(run_headwater("lag", "s", "g", "--max", "0s", "-o", "json"))
    assert (found["unread"], found["lag_ms"], found["oldest_pending_ms"]) == (0, 0, None)
    assert "has no group 'x'" in run_headwater("lag", "s", "x", status=1)
    assert "there is no stream 'x'" in run_headwater("lag", "x", status=1)


def test_an_unknown_lag_is_not_within_a_bound(core: Core, url: str, run_headwater: Run) -> None:
    # Given an unread entry, and a user without the right to measure the lag
    core.client.xadd("s", {"v": 1})
    rights = ["+@all", "-xlag" if core.member.able.verbs else "-xrange", "-eval_ro"]
    core.client.acl_setuser("eve", enabled=True, nopass=True, keys=["*"], commands=rights)
    address = ("--url", url.replace("redis://", "redis://eve:any@"))
    # Then it is unknown, which is not less than an hour
    assert "unknown" in run_headwater("lag", "s", "--max", "1h", *address, status=3)
    (found,) = json.loads(run_headwater("lag", "s", "-o", "json", *address))
    assert found["lag_ms"] is None
    assert "1 " in run_headwater("lag", "s", "--max", "1h")


def test_a_key_of_another_type_is_named(core: Core, run_headwater: Run) -> None:
    core.client.set("text", "x")
    for words in (
        ("tail", "text"),
        ("lag", "text"),
        ("explain", "text"),
        ("pending", "list", "text"),
    ):
        assert "'text' is not a stream" in run_headwater(*words, status=1)


def test_many_streams_are_read_a_few_hundred_at_a_time(core: Core, run_headwater: Run) -> None:
    pipe = core.client.pipeline(transaction=False)
    for n in range(1_203):
        pipe.xadd(f"many.{n}", {"v": n})
        pipe.xgroup_create(f"many.{n}", "g", "0")
    pipe.execute()
    assert len(json.loads(run_headwater("streams", "list", "many.*", "-o", "json"))) == 1_203
    found = json.loads(run_headwater("groups", "list", "-o", "json"))
    assert len({one["stream"] for one in found if one["unread"] == 1}) == 1_203


# --- entries --------------------------------------------------------------------------------------


def test_the_last_entries_are_printed_oldest_first(core: Core, run_headwater: Run) -> None:
    ids = [run_headwater("add", "s", f"n={n}", "item=tea").strip() for n in range(12)]
    lines = run_headwater("tail", "s", "-n", "3").splitlines()
    assert lines == [f"{ids[n]}  n={n}  item=tea" for n in (9, 10, 11)]
    documents = [json.loads(line) for line in run_headwater("tail", "s", "-o", "json").splitlines()]
    assert documents[-1] == {"id": ids[11], "fields": [["n", "11"], ["item", "tea"]]}
    assert len(documents) == 10


def test_only_entries_that_fit_all_conditions_are_printed(core: Core, run_headwater: Run) -> None:
    for n in range(300):
        core.client.xadd("s", {"n": n, "item": "green tea" if n % 2 else "cake"})

    def values(*words: str) -> list[int]:
        printed = run_headwater("tail", "s", *words, "-o", "json")
        return [int(dict(json.loads(line)["fields"])["n"]) for line in printed.splitlines()]

    assert values("--where", "n < 12", "--where", "item ~ tea", "-n", "3") == [7, 9, 11]
    assert values("--from", "0-1", "--where", "n >= 298") == [298, 299]
    assert values("--from", "1h", "--where", "n = 5") == [5]
    assert values("--where", "n ~ 29", "-n", "3") == [297, 298, 299]
    assert "is not a condition" in run_headwater("tail", "s", "--where", "n", status=2)
    assert "there is no stream 'x'" in run_headwater("tail", "x", status=1)


@pytest.mark.parametrize(
    ("condition", "value", "holds"),
    [
        ("n = 9007199254740992", "9007199254740993", False),
        ("n > 0.1", "0.10000000000000000001", True),
        ("n = 1.0", "1", True),
        ("n ~ 1", "10", True),
        ("n ~ 1.0", "1", False),
        ("n < 10", "nan", False),
        ("n = nan", "nan", True),
        ("n < 1e999999999", "5", True),
    ],
)
def test_numbers_compare_exactly_and_parts_as_text(condition: str, value: str, holds: bool) -> None:
    assert Condition.parse(condition).holds(TextEntry("1-0", [("n", value)])) == holds


def test_an_entry_added_while_the_last_ones_are_read_comes_after_them(core: Core) -> None:
    # Given more entries than one page has, of which the first fits
    core.client.xadd("s", {"n": 1})
    ids = [core.client.xadd("s", {"n": 0}) for _ in range(2 * PAGE)]

    # When one is added between two pages
    def meanwhile(step: int, _commands: object) -> None:
        if step == 1:
            ids.append(core.client.xadd("s", {"n": 1}))

    found = core.do(stepped(last("s", 5, [Condition.parse("n = 1")]), meanwhile))
    # Then it is not among those found, and what follows begins with it
    assert len(found.found) == 1
    assert found.end.encode() == ids[-2]


def test_an_entry_is_added_once_for_each_name(core: Core, run_headwater: Run) -> None:
    first = run_headwater("add", "s", "n=1", "--once", "order-1")
    assert run_headwater("add", "s", "n=1", "--once", "order-1") == first
    assert core.client.xlen("s") == 1
    assert "write FIELD=VALUE" in run_headwater("add", "s", "n", status=2)


def test_values_that_are_not_text_are_printed(core: Core, run_headwater: Run) -> None:
    added: Any = core.client.xadd("s", {b"v": b"\xff\n"})
    (line,) = run_headwater("tail", "s", "-o", "json").splitlines()
    assert json.loads(line) == {"id": added.decode(), "fields": [["v", "\udcff\n"]]}
