"""Scheduled messages are listed and cancelled from the command line, also before a worker ran."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import redis

from headwater import App, Stream
from headwater.cli.scheduled import cancel
from headwater.groups.protocol.operation import Operation, Refused, run
from headwater.groups.settling import scheduling
from headwater.operations import scheduled
from headwater.operations.scheduled import PAGE, cancel_all

pytestmark = pytest.mark.slow

Run = Callable[..., str]


@pytest.fixture
def three(url: str) -> list[str]:
    """The ids of three messages that are scheduled for the stream ``orders``, which has no entry yet, by due time."""
    orders = Stream("orders", dict[str, int], codec="json", maxlen=100)
    with App(url) as app:
        found = {
            hours: app.publish(orders, {"n": hours}, after=f"{hours}h").id for hours in (3, 1, 2)
        }
    return [found[hours] for hours in sorted(found)]


def test_what_is_scheduled_is_listed_by_due_time_with_its_fields(
    three: list[str], run_headwater: Run
) -> None:
    listed = json.loads(run_headwater("scheduled", "list", "orders", "-o", "json"))
    assert [one["id"] for one in listed] == three
    assert [one["due_ms"] // 3_590_000 for one in listed] == [1, 2, 3]
    assert listed[0]["fields"] == [["data", '{"n":1}']]
    table = run_headwater("scheduled", "list", "orders", "--count", "2")
    assert "59 min 5" in table
    assert "… and 1 more (--count)" in table
    assert "\n" not in run_headwater("scheduled", "list", "nothing").strip()


def test_pending_list_shows_what_is_scheduled_before_a_worker_ran(
    url: str, three: list[str], run_headwater: Run
) -> None:
    # Given a stream that does not exist yet, then its scheduled messages are told instead of an error
    assert "3 scheduled for orders" in run_headwater("pending", "list", "orders")
    assert run_headwater("pending", "list", "orders", "-o", "json") == "[]\n"
    # And next to its groups once it exists
    with redis.Redis.from_url(url) as client:
        client.xgroup_create("orders", "billing", mkstream=True)
    printed = run_headwater("pending", "list", "orders")
    assert "group billing: 0 pending" in printed
    assert "3 scheduled for orders" in printed
    assert "there is no stream 'nothing'" in run_headwater("pending", "list", "nothing", status=1)


def test_scheduled_messages_are_cancelled_once(
    url: str, three: list[str], run_headwater: Run
) -> None:
    # Given three messages, of which one is named: a dry run and a missing answer change nothing
    first, *others = three
    assert first in run_headwater("scheduled", "cancel", "orders", first, "--dry-run")
    assert "--yes skips the question" in run_headwater(
        "scheduled", "cancel", "orders", first, status=1
    )
    # When it is cancelled, then it is gone, and a second time that is said
    assert run_headwater("scheduled", "cancel", "orders", first, "--yes") == "1 cancelled\n"
    said = run_headwater("scheduled", "cancel", "orders", first, others[0], "--yes", status=1)
    assert f"{first} not scheduled for orders" in said
    # And with --all the others
    assert run_headwater("scheduled", "cancel", "orders", "--all", "--yes") == "2 cancelled\n"
    with redis.Redis.from_url(url) as client:
        assert client.xlen("{orders}:hw:later") == 0
    assert "nothing is scheduled" in run_headwater(
        "scheduled", "cancel", "orders", "--all", "--yes"
    )
    run_headwater("scheduled", "cancel", "orders", status=2)


def test_what_was_cancelled_before_a_refusal_is_recorded(url: str, three: list[str]) -> None:
    # Given two pages of ids, and an operator who loses the right to cancel after the first page
    ids = three + [f"1-{number}" for number in range(1, PAGE)]
    with redis.Redis.from_url(url) as admin:
        admin.execute_command("ACL", "SETUSER", "operator", "reset", "on", "nopass", "+@all", "~*")

        def denied_after_a_page(operation: Operation[list[str]]) -> Operation[list[str]]:
            replies = yield next(operation)
            admin.execute_command("ACL", "SETUSER", "operator", "-xdel")
            while True:
                try:
                    commands = operation.send(replies)
                except StopIteration as end:
                    cancelled: list[str] = end.value
                    return cancelled
                replies = yield commands

        # When all are cancelled, then the second page is refused
        with (
            redis.Redis.from_url(url, username="operator", password="any") as operator,
            pytest.raises(Refused, match="xdel"),
        ):
            run(operator, denied_after_a_page(cancel_all("orders", ids)))
        # And the record says what the first page cancelled, and by whom
        records: Any = admin.xrange("{orders}:hw:actions")
        ((_, fields),) = records
        assert fields[b"entries"] == b"3"
        assert fields[b"refused"] == b"%d" % (len(ids) - 3)
        assert (fields[b"user"], fields[b"first"]) == (b"operator", three[0].encode())
        admin.execute_command("ACL", "DELUSER", "operator")


def test_what_was_cancelled_before_ctrl_c_is_said_and_recorded(
    url: str,
    three: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # Given messages that are cancelled one at a time, and Ctrl-C at the second
    monkeypatch.setattr(scheduled, "PAGE", 1)
    pages: list[Sequence[str]] = []

    def cancel_each(stream: str, page: Sequence[str]) -> Operation[list[str]]:
        pages.append(page)
        if len(pages) == 2:
            raise KeyboardInterrupt
        return (yield from scheduling.cancel_each(stream, page))

    monkeypatch.setattr(scheduled, "cancel_each", cancel_each)
    # When all are cancelled
    with pytest.raises(KeyboardInterrupt):
        cancel("orders", every=True, yes=True, url=url)
    # Then the number that was cancelled is said and recorded
    assert "at least 1 of 3 messages cancelled" in capsys.readouterr().err
    with redis.Redis.from_url(url) as client:
        ((_, fields),) = client.xrange("{orders}:hw:actions")
    assert (fields[b"action"], fields[b"entries"]) == (b"cancel", b"1")
