"""Streams, groups and consumers whose names are not UTF-8 are shown, and can be named."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import pytest
import redis
from prometheus_client import CollectorRegistry, generate_latest

from headwater.cli.exporter import StoreCollector
from headwater.cli.query import query
from headwater.common.names import text_of

pytestmark = pytest.mark.slow

Run = Callable[..., str]

STREAM, GROUP, CONSUMER = b"caf\xe9", b"g\xff", b"c\xfe"
NAMES = (text_of(STREAM), text_of(GROUP))


@pytest.fixture
def entry(url: str) -> str:
    """The id of a pending entry of the consumer, whose stream is next to one with a name in UTF-8."""
    with redis.Redis.from_url(url) as client:
        client.xadd("good", {"v": 1})
        added = client.xadd(STREAM, {"v": 1})
        for stream in ("good", STREAM):
            client.xgroup_create(stream, GROUP, id="0")
        client.xreadgroup(GROUP, CONSUMER, {STREAM: ">"})
    assert isinstance(added, bytes)
    return added.decode()


def test_all_groups_of_a_store_are_explained(entry: str, run_headwater: Run) -> None:
    explained = json.loads(run_headwater("explain", "--window", "0s", "-o", "json"))
    assert [(one["stream"], one["group"]) for one in explained] == [
        (stream, text_of(GROUP)) for stream in sorted(("good", text_of(STREAM)))
    ]
    one = run_headwater("explain", *NAMES, entry)
    assert r"consumer c\xfe (active) owns it" in one


def test_a_name_that_was_listed_can_be_given_to_other_commands(
    entry: str, run_headwater: Run
) -> None:
    # Given the names that lists print
    stream = json.loads(run_headwater("streams", "list", "caf*", "-o", "json"))[0]["stream"]
    group = json.loads(run_headwater("groups", "list", stream, "-o", "json"))[0]["group"]
    consumer = json.loads(run_headwater("consumers", "list", stream, group, "-o", "json"))[0][
        "name"
    ]
    # Then commands find what has them
    assert entry in run_headwater("tail", stream)
    assert entry in run_headwater("pending", "list", stream, group)
    assert r'"g\xff"' in run_headwater("lag", stream, group)
    run_headwater("pending", "release", stream, group, "--consumer", consumer, "--yes")
    (pending,) = json.loads(run_headwater("pending", "list", stream, group, "-o", "json"))
    assert [(one["id"], one["owner"]) for one in pending["entries"]] == [(entry, "")]
    run_headwater("pending", "bury", stream, group, entry, "--yes")
    assert "1" in run_headwater("dead", "list", stream)


def test_metrics_have_the_names_with_their_bytes_as_escapes(url: str, entry: str) -> None:
    registry = CollectorRegistry()
    registry.register(StoreCollector(lambda asked: query(url, asked), consumers=True))
    text = generate_latest(registry).decode()
    assert 'stream="caf\\\\xe9"' in text
    assert 'consumer="c\\\\xfe"' in text


@pytest.mark.parametrize(("form", "printed"), [("table", rb'"caf\xe9"'), ("json", rb'"caf\udce9"')])
def test_the_bytes_of_a_name_are_quoted_and_json_stays_utf8(
    url: str, entry: str, form: str, printed: bytes
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "headwater.cli.main", "streams", "list", "-o", form],
        check=True,
        capture_output=True,
        timeout=60,
    )
    assert printed in done.stdout
