"""Worker processes are started, restarted, stopped by signals and killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.client.sync.connect import connect
from headwater.messages.keys import poison_key
from headwater.worker.process import embedded_store
from tests.processes import children, runs
from tests.worker import shop
from tests.worker.apps import Store, eventually, one_store
from tests.worker.processes import one_worker, quarantine_of, supervised, workers_of

pytestmark = pytest.mark.slow


async def _send(store: Store, *entries: shop.Order) -> None:
    for one in entries:
        await store.look.xadd("orders", dict(shop.orders.codec.encode(one)))


async def _results(store: Store) -> list[shop.Invoice]:
    results: list[shop.Invoice] = await store.results(shop.invoices)
    return results


async def test_headwater_work_starts_n_workers_and_stops_them_gracefully(store: Store) -> None:
    with supervised(store.url, "--workers", "2") as parent:
        await eventually(lambda: parent.log().count("reads orders as") == 2)
        await _send(store, *(shop.Order(number, do="yield") for number in range(100)))
        await eventually(store.settled)
        workers = workers_of(parent.pid)
        parent.signal(signal.SIGTERM)
        status = parent.wait()
    results = await _results(store)
    assert status == 0
    assert sorted(one.order for one in results) == list(range(100))
    assert {one.by for one in results} <= set(workers)
    assert len(workers) == 2
    assert await store.consumers() == []


@one_store
async def test_a_worker_that_dies_is_restarted(store: Store) -> None:
    with supervised(store.url, "--workers", "1") as parent:
        await eventually(lambda: "reads orders as" in parent.log())
        (first,) = await eventually(lambda: workers_of(parent.pid))
        os.kill(first, signal.SIGKILL)
        await eventually(lambda: workers_of(parent.pid) not in ([], [first]))
        await _send(store, shop.Order(17))
        await eventually(store.settled)
        parent.signal(signal.SIGTERM)
        assert parent.wait() == 0
        assert "was ended by SIGKILL; restarting in 0.5 s" in parent.log()
    ((result),) = await _results(store)
    assert result.by != first


async def test_sigterm_hands_back_waiting_entries_and_lets_running_handlers_finish(
    store: Store,
) -> None:
    await _send(store, *(shop.Order(number, do="slow") for number in range(32)))
    with one_worker(store.url) as worker:
        await eventually(lambda: _owned(store, 32))
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
    results = await _results(store)
    assert 4 <= len(results) < 32
    assert all(one.count == 1 for one in results)
    rows = await store.pending()
    assert len(rows) == 32 - len(results)
    assert all(owner in {"", "hw.parked"} and count == 0 for _id, owner, _idle, count in rows)
    assert await store.consumers() == []


async def _owned(store: Store, count: int) -> bool:
    rows = await store.pending()
    return sum(owner not in {"", "hw.parked"} for _id, owner, _idle, _count in rows) >= count


@one_store
async def test_a_worker_stops_gracefully_when_its_parent_is_killed(store: Store) -> None:
    with supervised(store.url, "--workers", "1") as parent:
        await eventually(lambda: "reads orders as" in parent.log())
        (worker,) = workers_of(parent.pid)
        parent.signal(signal.SIGKILL)
        parent.wait()
        await eventually(lambda: "g of orders stopped" in parent.log())
        assert "the parent process has ended: stopping" in parent.log()
        await eventually(lambda: not runs(worker))
    assert await store.consumers() == []


async def test_the_children_of_a_supervisor_end_with_the_test(headwater_url: str) -> None:
    # Given children that notice the death of their supervisor late
    with supervised(headwater_url, "--workers", "1") as parent:
        found = await eventually(lambda: len(two := children(parent.pid)) == 2 and two)
        for pid in found:
            os.kill(pid, signal.SIGSTOP)
        parent.signal(signal.SIGKILL)
        parent.wait()

    # Then none of them is left to join a group of the next test, with the claim_after of this one
    await eventually(lambda: not any(map(runs, found)))


async def test_a_poison_message_is_a_dead_letter_and_all_others_are_handled(store: Store) -> None:
    # Given an entry that kills every process that runs it, among others, and few deliveries
    with supervised(
        store.url, "--workers", "1", SHOP_CLAIM_AFTER="300ms", SHOP_MAX_DELIVERIES="3"
    ) as parent:
        await _send(
            store,
            *(shop.Order(number, do="kill" if number == 10 else "yield") for number in range(24)),
        )
        await eventually(store.settled)
        parent.signal(signal.SIGTERM)
        parent.wait()
        output = parent.log()

    # Then it is a dead letter after two crashes in quarantine, and every other entry is handled
    (letter,) = await store.dead()
    results = await _results(store)
    assert (b"id", b"10") in letter.fields
    assert letter.deliveries == 4
    assert letter.error.startswith("Crashes: 2 processes died while running it alone")
    assert sorted(one.order for one in results) == [n for n in range(24) if n != 10]
    assert output.count("the quarantine process was ended by SIGKILL; restarting in 0.5 s") == 2


async def test_a_poison_message_with_one_delivery_and_crash_allowed_affects_no_other(
    store: Store,
) -> None:
    # Given an entry that kills every process that runs it, among others that may be delivered once
    with supervised(
        store.url,
        "--workers",
        "1",
        SHOP_CLAIM_AFTER="300ms",
        SHOP_MAX_DELIVERIES="1",
        SHOP_MAX_CRASHES="1",
    ):
        await _send(
            store,
            *(shop.Order(number, do="kill" if number == 10 else "yield") for number in range(24)),
        )
        await eventually(store.settled)

    # Then it is a dead letter after the first crash in quarantine, and every other entry is handled
    (letter,) = await store.dead()
    assert (b"id", b"10") in letter.fields
    assert letter.error.startswith("Crashes: 1 process died while running it alone")
    results = await _results(store)
    assert sorted(one.order for one in results) == [n for n in range(24) if n != 10]


async def test_a_suspected_message_that_hangs_does_not_delay_the_worker(store: Store) -> None:
    # Given a message that hangs, and a worker
    with supervised(store.url, "--workers", "1", SHOP_CLAIM_AFTER="300ms") as parent:
        await eventually(lambda: "reads orders as" in parent.log())
        await _send(store, shop.Order(1, do="hang"), shop.Order(2))
        await eventually(lambda: _handled(store, {2}))
        (hanging,) = workers_of(parent.pid)

        # When the process that runs it along with others dies, twice
        os.kill(hanging, signal.SIGKILL)
        await eventually(lambda: workers_of(parent.pid) not in ([], [hanging]))
        await eventually(lambda: store.look.hlen(poison_key("orders", "g")))
        (hanging,) = workers_of(parent.pid)
        os.kill(hanging, signal.SIGKILL)

        # Then it hangs in the quarantine process, and the worker handles the rest
        await eventually(lambda: "runs alone" in parent.log())
        await _send(store, *(shop.Order(number) for number in range(3, 20)))
        await eventually(lambda: _handled(store, set(range(2, 20))))
        os.kill(quarantine_of(parent.pid)[0], signal.SIGKILL)


async def _handled(store: Store, orders: set[int]) -> bool:
    return {one.order for one in await _results(store)} == orders


@pytest.mark.parametrize(
    ("target", "complaint"),
    [
        (
            "tests.worker.shop",
            "expected MODULE:APP, got 'tests.worker.shop': write 'tests.worker.shop:app'",
        ),
        (
            "tests/worker/shop.py:app",
            "got the file 'tests/worker/shop.py': write 'tests.worker.shop:app'",
        ),
        ("./shop.py", "write 'shop:app'"),
        ("tests.worker.nowhere:app", "there is no module 'tests.worker.nowhere'"),
        ("tests.worker.shop:nothing", "has no 'nothing'"),
        ("tests.worker.shop:broken", "is not an App but of type object"),
    ],
)
async def test_an_invalid_target_ends_with_one_line(
    headwater_url: str, target: str, complaint: str
) -> None:
    with supervised(headwater_url, target=target) as parent:
        assert parent.wait() != 0
        output = parent.log()
    assert complaint in output
    assert "Traceback" not in output


async def test_a_refused_claim_after_ends_all_workers_with_one_line(store: Store) -> None:
    await store.look.xgroup_create("orders", "g", mkstream=True)
    await store.look.xgroup_createconsumer("orders", "g", "other")
    await store.look.hset("{orders}:hw:group:g", "claim_after_ms", "77000")
    with supervised(store.url, "--workers", "2") as parent:
        assert parent.wait() == 78
        output = parent.log()
    assert "group 'g' of stream 'orders' claims after 77000 ms" in output
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("address", "complaint"),
    [("/99", "DB index is out of range"), ("", "WRONGTYPE Operation against a key")],
)
async def test_an_error_of_the_store_at_the_start_ends_all_workers_with_one_line(
    store: Store, address: str, complaint: str
) -> None:
    # Given a database that the store does not have, or a key of another type
    await store.look.set("orders", "a string")
    with supervised(store.url + address) as parent:
        # Then the workers exit with the status for configuration errors
        assert parent.wait() == 78
        output = parent.log()
    assert "bill cannot join group 'g' of stream 'orders' at redis://" in output
    assert complaint in output
    assert "Traceback" not in output


async def test_headwater_work_serves_an_embedded_store_to_its_workers(tmp_path: Path) -> None:
    url = f"headwater://{tmp_path}/data"
    with connect(url) as store:
        for number in range(20):
            store.xadd("orders", {"id": number})
    with supervised(url, "--workers", "2") as parent:
        await eventually(lambda: "reads orders as" in parent.log())
        await eventually(lambda: parent.log().count("reads orders as") == 2)

        # When another process opens that directory, then its error names the remedy
        with supervised(url, "--workers", "1") as second:
            assert second.wait() != 0
            assert "headwater serve --dir" in second.log()
        parent.signal(signal.SIGTERM)
        assert parent.wait() == 0
    with connect(url) as store:
        assert store.xlen("invoices") == 20


async def test_a_served_store_stops_after_the_workers_when_their_parent_is_killed(
    tmp_path: Path,
) -> None:
    # Given two workers on a store that their parent serves
    url = f"headwater://{tmp_path}/data"
    with supervised(url, "--workers", "2") as parent:
        await eventually(lambda: parent.log().count("reads orders as") == 2)
        await eventually(lambda: parent.log().count("1 consumer on") == 3)
        processes = children(parent.pid)

        # When the parent is killed
        parent.signal(signal.SIGKILL)
        parent.wait()

        # Then all processes end, the workers before the store
        await eventually(lambda: not any(runs(pid) for pid in processes))
        assert parent.log().count("g of orders stopped\n") == 2
    assert len(processes) == 4
    with connect(url) as store:
        left = {one["name"] for one in store.xinfo_consumers("orders", "g")}
        assert left <= {b"hw.sign"}


def test_the_default_grace_is_that_of_the_app(monkeypatch: pytest.MonkeyPatch) -> None:
    graces: list[int] = []

    class Supervisor:
        def __init__(self, _target: str, *, grace_ms: int, **_options: object) -> None:
            graces.append(grace_ms)

        async def run(self) -> int:
            return 0

    monkeypatch.setattr(embedded_store, "Supervisor", Supervisor)
    for given in (None, 0):
        embedded_store.supervise_on_its_store("tests.worker.shop:app", workers=1, grace_ms=given)
    assert graces == [20_000, 0]


async def test_dead_letters_are_listed_shown_replayed_and_dropped(
    store: Store, run_headwater: Callable[..., str]
) -> None:
    with supervised(store.url, SHOP_MAX_DELIVERIES="2") as parent:
        await _send(store, shop.Order(1, do="fail"), shop.Order(2, do="fail"), shop.Order(3))
        await eventually(lambda: _dead(store, 2))
        parent.signal(signal.SIGTERM)
        parent.wait()
    first, second = await store.dead()
    number = dict(first.fields)[b"id"]  # retry delays have jitter, so either may be the first

    listed = run_headwater("dead", "list", "orders", "--url", store.url)
    shown = run_headwater("dead", "show", "orders", first.id, "--url", store.url)
    assert [line.split()[0] for line in listed.splitlines()] == [first.id, second.id]
    assert "ValueError: as requested" in listed
    assert f"id = {number.decode()}" in shown
    assert "deliveries  2" in shown
    assert "shop.py" in shown

    replayed = run_headwater("dead", "replay", "orders", first.id, "--url", store.url)
    assert replayed == f"{first.id}: orders {first.entry_id} is pending in group g again\n"
    assert [row[0] for row in await store.pending()] == [first.entry_id]
    assert await store.look.xlen("orders") == 3
    assert (
        run_headwater("dead", "drop", "orders", "--all", "--yes", "--url", store.url)
        == "1 dropped\n"
    )
    assert await store.dead() == []


async def _dead(store: Store, count: int) -> bool:
    return len(await store.dead()) == count


def test_the_error_of_the_dead_commands_names_the_missing_dead_letter(
    headwater_url: str, run_headwater: Callable[..., str]
) -> None:
    output = run_headwater("dead", "show", "orders", "5-5", "--url", headwater_url, status=1)
    assert "{orders}.dead has no dead letter 5-5" in output
    output = run_headwater("dead", "replay", "orders", "--url", headwater_url, status=2)
    assert "name at least one dead letter" in output


def test_the_dead_commands_fail_with_one_line_for_a_key_of_another_type(
    headwater_url: str, run_headwater: Callable[..., str]
) -> None:
    with connect(headwater_url) as store:
        store.set("{orders}.dead", "text")
        output = run_headwater("dead", "drop", "orders", "--all", "--url", headwater_url, status=1)
        store.delete("{orders}.dead")
    assert output.startswith(f"headwater: {headwater_url} refused the request: WRONGTYPE")
    assert "Traceback" not in output
