"""The report of a group's pending entries says what each entry waits for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headwater.errors import HeadwaterError
from headwater.groups.reports.pending import GroupPending, PendingFilter, PendingState, pending
from headwater.groups.settling.settling import How
from tests.worker.core import CLAIM_AFTER_MS, Core


def _report(core: Core, **options: Any) -> GroupPending:
    found: list[GroupPending] = core.do(pending("s", "g", **options))
    (one,) = found
    return one


def test_an_entry_in_flight_has_its_owner_and_delivery_count(core: Core) -> None:
    core.client.xadd("s", {"v": "a"})
    (entry,) = core.read()

    report = _report(core)

    (row,) = report.entries
    assert (row.id, row.owner, row.deliveries) == (entry.id.decode(), "one", 1)
    assert (row.state, row.due_ms) == (PendingState.IN_FLIGHT, None)
    assert row.idle_ms is not None
    assert row.idle_ms < CLAIM_AFTER_MS
    assert (report.pending, report.claim_after_ms) == (1, CLAIM_AFTER_MS)
    assert (report.last_seen, report.oldest_unread) == ("one", "")


@pytest.mark.parametrize("delay_ms", [30_000, 3_600_000])
def test_a_delayed_entry_has_its_due_time(core: Core, delay_ms: int) -> None:
    # Given a retry that waits for less, or for more, than claim_after
    core.client.xadd("s", {"v": "a"})
    (entry,) = core.read()
    core.settle(entry, How.FAIL, delay_ms=delay_ms)

    report = _report(core)

    (row,) = report.entries
    assert (row.state, row.owner, row.deliveries) == (PendingState.PARKED, "", 1)
    assert report.next_due_ms is not None
    assert delay_ms - 20_000 < report.next_due_ms <= delay_ms
    assert row.due_ms == report.next_due_ms


def test_delayed_and_claimable_entries_have_different_states(
    core: Core,
) -> None:
    for value in ("a", "b"):
        core.client.xadd("s", {"v": value})
    parked, released = core.read()
    core.settle(parked, How.FAIL, delay_ms=30_000)
    core.settle(released, How.SILENT)

    states = [row.state for row in _report(core).entries]

    assert states == [PendingState.PARKED, PendingState.CLAIMABLE]


def test_an_entry_that_its_owner_did_not_renew_is_claimable(core: Core) -> None:
    core.client.xadd("s", {"v": "a"})
    (entry,) = core.read()
    core.age(entry, CLAIM_AFTER_MS + 1)

    (row,) = _report(core).entries

    assert (row.state, row.owner) == (PendingState.CLAIMABLE, "one")


def test_a_released_entry_is_claimable(core: Core) -> None:
    core.client.xadd("s", {"v": "a"})
    (entry,) = core.read()
    core.settle(entry, How.SILENT)

    (row,) = _report(core).entries

    assert (row.state, row.owner, row.idle_ms) == (PendingState.CLAIMABLE, "", None)


def test_the_report_has_the_oldest_unread_entry(core: Core) -> None:
    core.client.xadd("s", {"v": "a"})
    core.read()
    second: Any = core.client.xadd("s", {"v": "b"})
    core.client.xadd("s", {"v": "c"})

    report = _report(core)

    assert (report.oldest_unread, report.unread) == (second.decode(), 2)
    assert report.oldest_unread_age_ms is not None


def test_count_limits_the_reported_entries_and_not_the_total(core: Core) -> None:
    ids: list[Any] = [core.client.xadd("s", {"v": "a"}) for _ in range(5)]
    core.read()

    report = _report(core, which=PendingFilter(2))

    assert [row.id for row in report.entries] == [one.decode() for one in ids[:2]]
    assert report.pending == 5


def test_all_groups_are_reported_including_one_without_workers(core: Core) -> None:
    core.client.xgroup_create("s", "h", "$")
    g, h = core.do(pending("s"))
    assert (g.group, h.group) == ("g", "h")
    assert (h.last_seen, h.last_seen_ms, h.claim_after_ms) == ("", None, None)


@pytest.mark.parametrize(
    ("operation", "complaint"),
    [
        (lambda: pending("nothing"), "there is no stream 'nothing'"),
        (lambda: pending("s", "nobody"), "stream 's' has no group 'nobody': its groups are g"),
    ],
)
def test_a_missing_stream_or_group_is_an_error(
    core: Core, operation: Callable[[], Any], complaint: str
) -> None:
    with pytest.raises(HeadwaterError, match=complaint):
        core.do(operation())
