"""Fixtures: the stores that the source reads from, and one Spark session per run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
import redis

from headwater.spark.core.options import parse_options
from headwater.spark.core.planning.planners import planner
from headwater.spark.core.planning.planning import Planner
from headwater.spark.core.store import SourceStore
from headwater.testing.server import server_process
from tests import peers
from tests.spark.stores import QUICK_QUERIES, Shop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STORES = ("headwater", "redis-8.2", "valkey-9.1")
SELDOM = ("redis-7.0", "valkey-9.1")
"""Not in `make quick`: differences between servers mostly show on the other two."""

NO_PANDAS = "ignore:PySpark does not yet fully support pandas:FutureWarning"
"""Other packages install pandas, and PySpark warns when it finds it."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/spark/" in item.path.as_posix():
            item.add_marker(pytest.mark.filterwarnings(NO_PANDAS))


@pytest.fixture(scope="session")
def _headwater_of_this_run() -> Iterator[Callable[[], str]]:
    with ExitStack() as stack:
        started: list[str] = []

        def give() -> str:
            if not started:
                server = stack.enter_context(server_process("--appendfsync", "no"))
                started.append(server.url)
            return started[0]

        yield give


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test with a `Shop` on each store, or on those that its module names."""
    named = [
        mark for mark in metafunc.definition.iter_markers("parametrize") if mark.args[0] == "shop"
    ]
    if "shop" in metafunc.fixturenames and not named:
        stores = getattr(metafunc.module, "STORES", STORES)
        # A query takes seconds, and each of its steps is tested on every server without Spark.
        seldom = pytest.mark.slice if "spark" in metafunc.fixturenames else pytest.mark.slow
        marks = {name: [seldom] if name in SELDOM else [] for name in stores}
        shops = [pytest.param(name, marks=marks[name]) for name in stores]
        metafunc.parametrize("shop", shops, indirect=True)


@pytest.fixture
def shop(
    request: pytest.FixtureRequest,
    _headwater_of_this_run: Callable[[], str],
    shared_peer: Callable[[str], peers.Peer],
) -> Iterator[Shop]:
    """An empty store with a client to fill it, for each kind of server in turn."""
    name = request.param
    url = _headwater_of_this_run() if name == "headwater" else shared_peer(name).url
    with redis.Redis.from_url(url, protocol=2) as client:
        client.flushall()
        yield Shop(name, url, client)


@pytest.fixture(autouse=True)
def found_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let queries in this process find new streams at once, not a second later."""
    monkeypatch.setattr("headwater.spark.core.store._SEARCH_SECONDS", 0.0)
    monkeypatch.setattr("headwater.spark.core.store._SEARCH_SHARE", 0.0)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A bare session, in which nothing is registered or configured for Headwater."""
    import warnings

    from headwater.spark.sessions import prepare_environment

    prepare_environment(local=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pyspark.sql import SparkSession

        builder: Any = SparkSession.builder
        session = (
            builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config(map=QUICK_QUERIES)
            .config("spark.sql.session.timeZone", "UTC")
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("ERROR")
        yield session
        session.stop()


@pytest.fixture
def warned(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """The log records at level WARNING of the source."""
    with caplog.at_level(logging.WARNING, "headwater.spark"):
        yield caplog


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reduce the sink's packs, so that a few rows take many steps."""
    from headwater.spark.sink import appending

    monkeypatch.setattr(appending, "FLUSH_ROWS", 4)


@pytest.fixture
def store(shop: Shop) -> Iterator[SourceStore]:
    """What planning knows of the stream ``s``."""
    opened = SourceStore(parse_options({"url": shop.url, "stream": "s"}))
    yield opened
    opened.close()


@pytest.fixture
def plans(store: SourceStore) -> Planner:
    return planner(store)
