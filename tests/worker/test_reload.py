"""``headwater work --reload`` and ``--concurrency``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from headwater.errors import DeclarationError
from headwater.worker import App
from headwater.worker.process.source_watch import SourceWatch, is_source
from tests.worker.apps import Order, eventually, orders
from tests.worker.processes import WorkerProcess, supervised

SHOP = """
import sys
import time
from headwater import App, Delivery, Stream
import msgspec
from prices import PRICE

class Order(msgspec.Struct):
    id: int

app = App({url!r}, grace="20s")

@app.consumer(Stream("orders", Order), group="g", claim_after="2s")
async def bill(order: Order, delivery: Delivery) -> None:
    if order.id == 99 and delivery.count == 1:
        sys.stderr.write("order 99 blocks\\n")
        time.sleep(600)
    sys.stderr.write(f"order {{order.id}} costs {{PRICE}}\\n")
"""


# --- which files ----------------------------------------------------------------------------------


def test_files_of_headwater_are_not_sources_of_the_program() -> None:
    from headwater import errors

    assert not is_source(errors.__file__)
    assert not is_source(is_source.__code__.co_filename)
    assert is_source(__file__)


def test_changed_added_and_removed_sources_are_found(tmp_path: Path) -> None:
    # Given source files, and files that are not
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "a.py").write_text("a")
    (tmp_path / "b.py").write_text("b")
    for pruned in (".git", "node_modules", "__pycache__", "venv"):
        (tmp_path / pruned).mkdir()
    (tmp_path / "venv" / "pyvenv.cfg").touch()
    watch = SourceWatch(tmp_path)
    assert watch.changed() == []

    # When sources change, then each is reported once
    (tmp_path / "shop" / "a.py").write_text("changed")
    (tmp_path / "b.py").unlink()
    (tmp_path / "c.py").touch()
    assert watch.changed() == [str(tmp_path / name) for name in ("b.py", "c.py", "shop/a.py")]
    assert watch.changed() == []

    # And other files are not reported
    (tmp_path / "notes.txt").touch()
    for pruned in (".git", "node_modules", "__pycache__", "venv"):
        (tmp_path / pruned / "d.py").touch()
    assert watch.changed() == []


def test_a_change_before_a_file_is_added_a_second_time_is_found(tmp_path: Path) -> None:
    source = tmp_path / "a.py"
    source.write_text("a")
    watch = SourceWatch(tmp_path)
    source.write_text("changed")
    watch.add(str(source))
    assert watch.changed() == [str(source)]


def test_a_change_with_the_same_length_and_second_is_found(tmp_path: Path) -> None:
    source = tmp_path / "a.py"
    source.write_text("1")
    os.utime(source, ns=(17_000_000_000, 17_000_000_000))
    watch = SourceWatch(tmp_path)
    source.write_text("2")
    os.utime(source, ns=(17_000_000_000, 17_000_000_001))
    assert watch.changed() == [str(source)]


# --- processes ------------------------------------------------------------------------------------


@pytest.fixture
def url(store_url: Callable[[str], str]) -> str:
    """The address of a store. One kind is enough, because reloading does not use it."""
    return store_url("headwater")


@pytest.fixture
def reloading(url: str, tmp_path: Path) -> Iterator[WorkerProcess]:
    """``headwater work --reload`` of an app in ``tmp_path``."""
    (tmp_path / "shop.py").write_text(SHOP.format(url=url))
    (tmp_path / "prices.py").write_text("PRICE = 1")
    command = [sys.executable, "-m", "headwater.cli.main", "work", "shop:app", "--reload"]
    parent = WorkerProcess(command, url=url, environment={}, directory=tmp_path)
    yield parent
    parent.end()


@pytest.mark.slow
async def test_workers_restart_when_a_source_file_changes(
    url: str, tmp_path: Path, reloading: WorkerProcess
) -> None:
    look = redis.Redis.from_url(url)

    async def costs(number: int, price: int) -> None:
        look.xadd("orders", {"id": str(number)})
        await eventually(lambda: f"order {number} costs {price}\n" in reloading.log())

    await costs(1, price=1)

    # When a module that the app imports changes, then the new code handles the next message
    (tmp_path / "prices.py").write_text("PRICE = 2")
    await eventually(lambda: "prices.py changed: restarting the workers" in reloading.log())
    await eventually(lambda: reloading.log().count("bill reads orders as") == 2)
    await costs(2, price=2)

    # When it has an error, then the supervisor keeps running
    (tmp_path / "prices.py").write_text("PRICE = (")
    await eventually(lambda: "SyntaxError" in reloading.log())
    await eventually(lambda: "worker 0 ended with status 1; restarting in" in reloading.log())

    # And when it is repaired, then a worker starts at once
    (tmp_path / "prices.py").write_text("PRICE = 3")
    await costs(3, price=3)

    # When a handler blocks the event loop, then its worker is killed at the next change
    look.xadd("orders", {"id": "99"})
    await eventually(lambda: "order 99 blocks" in reloading.log())
    (tmp_path / "prices.py").write_text("PRICE = 4")
    await costs(5, price=4)

    # When the app is missing for a while, then the supervisor also keeps running
    (tmp_path / "shop.py").rename(tmp_path / "elsewhere")
    await eventually(lambda: "worker 0 ended with status 78; restarting in" in reloading.log())
    (tmp_path / "elsewhere").rename(tmp_path / "shop.py")
    await costs(6, price=4)

    reloading.signal(signal.SIGTERM)
    assert reloading.wait() == 0
    look.close()


@pytest.mark.slow
async def test_an_app_that_cannot_be_imported_is_started_once_it_is_repaired(
    url: str, tmp_path: Path
) -> None:
    # Given an app with a syntax error in a module that it imports
    (tmp_path / "shop.py").write_text(SHOP.format(url=url))
    (tmp_path / "prices.py").write_text("# prices in euros\nPRICE = (\n")
    command = [sys.executable, "-m", "headwater.cli.main", "work", "shop:app", "--reload"]
    parent = WorkerProcess(command, url=url, environment={}, directory=tmp_path)
    look = redis.Redis.from_url(url)
    try:
        # When it is started, then one line has the error and its place
        file = tmp_path / "prices.py"
        await eventually(lambda: "waiting for a source file to change" in parent.log())
        (line,) = parent.log().splitlines()
        assert f"shop:app cannot start: {file}, line 2: SyntaxError: '(' was never closed" in line

        # When that error is replaced by another, then the log has the new one
        file.write_text("PRISE = 1")
        await eventually(lambda: parent.log().count("waiting for a source file to change") == 2)
        assert f"{tmp_path / 'shop.py'}, line 6: ImportError: cannot import name" in parent.log()
        assert "Traceback" not in parent.log()

        # And when it is repaired, then a worker runs
        file.write_text("PRICE = 7")
        look.xadd("orders", {"id": "1"})
        await eventually(lambda: "order 1 costs 7\n" in parent.log())
        parent.signal(signal.SIGTERM)
        assert parent.wait() == 0
    finally:
        look.close()
        parent.end()


@pytest.mark.slow
def test_a_wrong_target_ends_reload_at_once(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("app = 1")
    for target, complaint in (("shop:ap", "has no 'ap'"), ("shp:app", "no module 'shp'")):
        done = subprocess.run(
            [sys.executable, "-m", "headwater.cli.main", "work", target, "--reload"],
            check=False,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=30,
        )
        assert done.returncode == 1
        assert complaint in done.stderr


# --- concurrency ----------------------------------------------------------------------------------


def test_use_concurrency_applies_to_every_consumer() -> None:
    app = App("headwater://memory")

    async def handle(order: Order) -> None: ...

    async def other(order: Order) -> None: ...

    app.consumer(orders, group="default")(handle)
    app.consumer(orders, group="own", concurrency=4, prefetch=6)(other)
    app.use_concurrency(2)
    assert [(one.concurrency, one.prefetch) for one in app.consumers] == [(2, 8), (2, 3)]
    with pytest.raises(DeclarationError, match="concurrency=0 must be a whole number"):
        app.use_concurrency(0)


@pytest.mark.slow
async def test_the_concurrency_option_limits_running_handlers(url: str) -> None:
    # Given four messages whose handlers never return, and one slot
    look = redis.Redis.from_url(url)
    for number in range(4):
        look.xadd("orders", {"id": str(number), "do": "hang"})
    with supervised(url, "--concurrency", "1") as parent:
        # Then one runs, and the prefetch is eight times the concurrency
        await eventually(lambda: _owned(look, 4))
        parent.signal(signal.SIGTERM)
        await eventually(lambda: "for 1 running bill" in parent.log())
        parent.signal(signal.SIGTERM)
        parent.wait()
    look.close()


def _owned(look: redis.Redis, count: int) -> bool:
    if not look.exists("orders") or not look.xinfo_groups("orders"):
        return False
    found: Any = look.xpending("orders", "g")
    return bool(found["pending"] == count)


def test_the_help_lists_the_options() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "headwater.cli.main", "work", "--help"],
        check=True,
        capture_output=True,
        text=True,
    )
    for option in ("--concurrency", "--reload", "--health"):
        assert option in done.stdout
