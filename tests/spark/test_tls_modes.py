"""Each mode over TLS with a client certificate and a user, all of them given in the url."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest
import redis

import headwater.spark
from headwater.testing.server import server_process
from tests import certificates
from tests.peers import Peer, free_port
from tests.spark.members import member_query
from tests.spark.queries import Query
from tests.spark.stores import Shop
from tests.spark.writes import Writing, numbers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.peer, pytest.mark.slow]

NUMBERS = list(range(1, 61))


@pytest.fixture(params=["headwater", "redis-7.0"])
def guarded(
    request: pytest.FixtureRequest, tmp_path: Path, peer: Callable[..., Peer]
) -> Iterator[Shop]:
    """A store that requires TLS with certificates on both sides, and a user."""
    made, port = certificates.make(tmp_path), free_port()
    with ExitStack() as stack:
        if request.param == "headwater":
            stack.enter_context(server_process(*made.flags(tls_port=port)))
        else:
            peer(request.param, *made.flags(tls_port=port))
        query = urlencode(made.client_options)
        with redis.Redis.from_url(f"rediss://127.0.0.1:{port}?{query}") as client:
            client.execute_command("ACL", "SETUSER", "spark", "on", ">s3cret", "allkeys", "+@all")
        url = f"rediss://spark:s3cret@127.0.0.1:{port}?{query}"
        client = stack.enter_context(redis.Redis.from_url(url, protocol=2))
        client.execute_command("ACL", "SETUSER", "default", "off")
        yield Shop(request.param, url, client)


def test_log_mode(guarded: Shop) -> None:
    guarded.add("s", NUMBERS)
    assert [n for batch in Query(guarded).batches() for n in batch] == NUMBERS


def test_group_mode(guarded: Shop) -> None:
    guarded.add("s", NUMBERS)
    with member_query(guarded) as query:
        assert sorted(query.read_all()) == NUMBERS


def test_the_sink(guarded: Shop) -> None:
    writing = Writing(guarded)
    writing.epoch(0, numbers(30))
    writing.epoch(1, numbers(30, start=31))
    assert sorted(guarded.numbers("s")) == NUMBERS


def test_a_missing_certificate_is_reported_without_the_password(guarded: Shop) -> None:
    bare = Shop(guarded.name, guarded.url.partition("&ssl_certfile")[0], guarded.client)
    guarded.add("s", NUMBERS)
    with pytest.raises(Exception, match=r"rediss://\*\*\*@127\.0\.0\.1:") as raised:
        Query(bare).batches()
    assert "s3cret" not in str(raised.value)


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("guarded", ["headwater"], indirect=True)
def test_a_session_reads_and_writes(spark: SparkSession, guarded: Shop, tmp_path: Path) -> None:
    guarded.add("s", NUMBERS)
    stream = headwater.spark.read_stream(spark, "s", url=guarded.url, schema="n bigint")
    query = headwater.spark.write_stream(
        stream, "copy", url=guarded.url, checkpoint=tmp_path / "c", available_now=True
    )
    query.awaitTermination()
    assert sorted(guarded.numbers("copy")) == NUMBERS
