"""The pytest plugin, in separate runs of pytest, and `SyncAppTest`, which its fixture returns."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.errors import HeadwaterError
from headwater.worker.sync_testing import SyncAppTest
from tests.worker.apps import invoices
from tests.worker.shop import app, bill

ROOT = Path(__file__).resolve().parent.parent.parent

PROGRAM = """
import threading

import msgspec

from headwater import App, Stream


class Order(msgspec.Struct):
    id: int


app = App("redis://nowhere", name="shop")
orders = Stream("orders", Order)
invoices = Stream("invoices", Order)
threads = set()


@app.consumer(orders, group="g", into=invoices)
def bill(order: Order) -> Order:
    if order.id == 2 and not threads:
        threads.add(threading.get_ident())
        raise ValueError("not yet")
    return order


@app.on_dead(orders)
async def alert(letter) -> None: ...


def test_a_retry(headwater_worker):
    t = headwater_worker(app)
    t.send(orders, Order(1), Order(2))
    assert t.results(invoices) == [Order(1)]
    t.crash(bill)
    t.advance("2s")
    assert t.results(invoices) == [Order(1), Order(2)]
    assert t.deliveries(bill) == [1, 1, 2]
    assert t.pending(bill) == {}
    t.add(orders, {"id": "no number"})
    assert len(t.dead(orders)) == 1
    orders.publish(Order(3))
    t.settle()
    assert t.results(invoices)[-1] == Order(3)


def test_another_one_begins_with_an_empty_store(headwater_worker):
    assert headwater_worker(app).results(invoices) == []


def test_that_fails(headwater_worker):
    headwater_worker(app)
    assert False
"""

IMPORTS = """
import sys


def test_an_unused_plugin_imports_nothing_else():
    mine = [name for name in sys.modules if name.startswith("headwater")]
    assert sorted(mine) == ["headwater", "headwater.pytest_plugin"]
    assert not {"redis", "msgspec", "typer"} & set(sys.modules)
"""


@pytest.fixture
def run_pytest(tmp_path: Path) -> Callable[[str], str]:
    """A function that runs pytest on a file with only this plugin and returns what it printed."""

    def run(source: str) -> str:
        (tmp_path / "test_shop.py").write_text(source)
        command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"]
        done = subprocess.run(
            [*command, "-p", "headwater.pytest_plugin", "test_shop.py"],
            cwd=tmp_path,
            env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            check=False,
            capture_output=True,
            text=True,
        )
        return done.stdout + done.stderr

    return run


@pytest.mark.slow
def test_the_fixture_runs_a_worker_in_sync_tests(
    run_pytest: Callable[[str], str],
) -> None:
    # A test that fails is reported as usual, and without a second error from the fixture.
    printed = run_pytest(PROGRAM)
    assert "1 failed, 2 passed" in printed, printed
    assert "FAILED test_shop.py::test_that_fails - assert False" in printed, printed


def test_the_unused_plugin_imports_nothing_else(
    run_pytest: Callable[[str], str],
) -> None:
    printed = run_pytest(IMPORTS)
    assert "1 passed" in printed, printed


def test_the_plugin_has_an_entry_point_for_pytest() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"headwater": "headwater.pytest_plugin"}


async def test_the_error_in_a_running_event_loop_recommends_app_test() -> None:
    with pytest.raises(HeadwaterError, match=r"use `async with app.test\(\)"):
        SyncAppTest(app).__enter__()


def test_an_app_can_be_tested_by_one_test_at_a_time() -> None:
    with SyncAppTest(app) as t:
        with pytest.raises(HeadwaterError, match="is already running"):
            SyncAppTest(app).__enter__()
        t.add("orders", {"id": "1", "do": "fail"})
        assert t.deliveries(bill) == [1]
        assert t.results(invoices) == []
