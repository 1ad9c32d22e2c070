"""Stores that the source reads from, and the one Spark session of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
import redis

from tests import peers
from tests.spark.stores import Shop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STORES = ("headwater", "redis-8.2", "valkey-9.1")

NO_PANDAS = "ignore:PySpark does not yet fully support pandas:FutureWarning"
"""pandas comes with other packages; PySpark mentions it when it finds it."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/spark/" in item.path.as_posix():
            item.add_marker(pytest.mark.filterwarnings(NO_PANDAS))


@pytest.fixture(scope="session")
def _headwater_of_this_run() -> Iterator[Callable[[], str]]:
    from tests.spark.stores import Headwater

    started: list[Headwater] = []

    def give() -> str:
        if not started:
            started.append(Headwater())
        return started[0].url

    yield give
    for server in started:
        server.stop()


@pytest.fixture(params=STORES)
def shop(
    request: pytest.FixtureRequest,
    _headwater_of_this_run: Callable[[], str],
    shared_peer: Callable[[str], peers.Peer],
) -> Iterator[Shop]:
    """A store, empty, with a client to fill it: each kind of server in turn."""
    name = request.param
    url = _headwater_of_this_run() if name == "headwater" else shared_peer(name).url
    with redis.Redis.from_url(url, protocol=2) as client:
        client.flushall()
        yield Shop(name, url, client)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A bare session: nothing is registered and nothing of Headwater is configured in it."""
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
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("ERROR")
        yield session
        session.stop()
