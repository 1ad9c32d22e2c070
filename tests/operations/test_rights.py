"""A user with exactly the rights that ``headwater acl`` prints does its whole job, and an error names what is missing."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
import redis.asyncio
from prometheus_client import CollectorRegistry, generate_latest

from headwater.cli.exporter import StoreCollector
from headwater.cli.query import query
from headwater.errors import HeadwaterError
from headwater.messages.dead import dead_letter_fields
from headwater.operations.rights import ROLES, rules
from tests.worker.apps import Store, work_in_every_way

Run = Callable[..., str]

WITHHELD = {"acl|log", "acl|dryrun", "config|get"}
"""Commands denied to a viewer, because they also show what it must not know. Their facts are shown as unknown."""

SERVERS = ("headwater", "redis-8.2")

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "spark-cluster.md"

LOOKS = (
    "streams list",
    "groups list",
    "lag s",
    "tail s",
    "pending list s",
    "pending show s g 1-1",
    "consumers list s g",
    "retries list s g",
    "explain --window 0s",
    "explain s g 1-1",
    "dead list s",
    "dead show s 9-1",
    "scheduled list s",
    "doctor s",
)


def made(client: redis.Redis, run_headwater: Run, name: str, line: str) -> None:
    """Make the user ``u`` with the rights that a command prints; forget earlier denials."""
    words = shlex.split(f"acl {line} --user u" + ("" if name == "headwater" else " --redis"))
    client.acl_deluser("u")
    client.execute_command(*run_headwater(*words).replace("PASSWORD", "pw").split())
    client.execute_command("ACL", "LOG", "RESET")


def denied(client: redis.Redis) -> set[str]:
    return {str(one["object"]) for one in client.acl_log()}


def as_user(url: str) -> str:
    return url.replace("redis://", "redis://u:pw@")


@pytest.fixture(params=SERVERS)
def store(request: pytest.FixtureRequest, store_url: Callable[[str], str]) -> tuple[str, str]:
    """Name and url of a server with a stream ``s``, whose group has a pending and an unread entry and a dead letter."""
    url = store_url(request.param)
    letter = dead_letter_fields(
        [b"v", b"1"],
        stream="s",
        group="g",
        entry_id="1-1",
        consumer="w",
        deliveries=1,
        error="ValueError: no",
        trace="",
        at_ms=1,
    )
    with redis.Redis.from_url(url) as client:
        for number in (1, 2):
            client.xadd("s", {"v": number}, id=f"{number}-1")
        client.xgroup_create("s", "g", "0")
        client.xreadgroup("g", "w", {"s": ">"}, count=1)
        client.xadd("{s}.dead", dict(letter), id="9-1")
    return request.param, url


@pytest.mark.slow
@pytest.mark.parametrize("name", SERVERS)
async def test_a_worker_with_its_rights_does_all_that_workers_do(
    store_url: Callable[[str], str], name: str, run_headwater: Run
) -> None:
    # Given a user with the rights of a worker of two streams
    url = store_url(name)
    with redis.Redis.from_url(url) as look:
        made(look, run_headwater, name, "worker orders invoices")
        async with redis.asyncio.Redis.from_url(url) as client:
            # When its workers settle, retry, bury, publish in every way, and cancel
            await work_in_every_way(Store(name, as_user(url), client))
        # Then nothing is denied, and other streams are
        assert denied(look) == set()
        with (
            redis.Redis.from_url(as_user(url)) as user,
            pytest.raises(redis.ResponseError, match=r"NOPERM|key"),
        ):
            user.xadd("others", {"v": 1})


def test_a_viewer_sees_everything_and_changes_nothing(
    store: tuple[str, str], run_headwater: Run
) -> None:
    name, url = store
    with redis.Redis.from_url(url) as client:
        made(client, run_headwater, name, "viewer s")
        # When it looks in every way
        for look in LOOKS:
            words = [*look.split(), "--url", as_user(url)]
            status = {"doctor s": 3}.get(look, 0)
            run_headwater(*words, status=status)
        # Then only what is withheld is denied
        assert denied(client) <= WITHHELD
        # And it can change nothing
        for change in (
            "add s v=1",
            "pending ack s g --all --yes",
            "streams trim s --maxlen 0 --yes",
        ):
            said = run_headwater(*change.split(), "--url", as_user(url), status=1)
            assert "the user needs the rule +" in said
        assert client.xlen("s") == 2
        assert client.xpending("s", "g")["pending"] == 1


def test_an_exporter_with_its_rights_has_every_metric(
    store: tuple[str, str], run_headwater: Run
) -> None:
    name, url = store

    def page(address: str) -> set[str]:
        registry = CollectorRegistry()
        registry.register(StoreCollector(lambda asked: query(address, asked), consumers=True))
        return {line.split(" ")[0] for line in generate_latest(registry).decode().splitlines()}

    with redis.Redis.from_url(url) as client:
        everything = page(url)
        made(client, run_headwater, name, "exporter")
        assert page(as_user(url)) >= everything
        assert denied(client) == set()


@pytest.mark.parametrize("mode", ["log", "group", "sink", "append"])
@pytest.mark.parametrize("redis_too", [False, True])
def test_the_rights_of_spark_are_those_of_the_guide(
    mode: str, *, redis_too: bool, run_headwater: Run
) -> None:
    # tests/spark/test_access.py runs each mode as a user with the rights in the guide
    titles = {
        "log": f"# log mode, {'Redis and Valkey' if redis_too else 'Headwater'}",
        "group": f"# group mode, {'Redis and Valkey' if redis_too else 'Headwater'}",
        "sink": "# sink, exactly once",
        "append": "# sink, at least once",
    }
    lines = GUIDE.read_text(encoding="utf-8").splitlines()
    documented = set(lines[lines.index(titles[mode]) + 1].split())
    line = run_headwater(
        "acl", "spark", "orders", "--mode", mode, *(["--redis"] if redis_too else [])
    )
    assert line.startswith("ACL SETUSER spark on >PASSWORD resetkeys ")
    assert {word for word in line.split() if word[0] in "+~"} == documented


@pytest.mark.parametrize("role", ROLES)
def test_rights_name_commands_and_keys_one_by_one(role: str) -> None:
    found = rules(role, ["orders"])
    assert "-@all" in found
    assert not [one for one in found if one in {"~*", "allkeys", "+@all", "&*"}]
    if not role.startswith("spark"):
        assert not [one for one in found if one.startswith("+@")]
    with pytest.raises(HeadwaterError, match="white space"):
        rules(role, ["two words"])


@pytest.mark.parametrize(
    ("allowed", "rule"),
    [
        ("+@all -xadd ~*", "+xadd"),
        ("+@all ~other", "~s"),
        ("+@all -xinfo|stream -xadd ~s", "+xadd"),
    ],
)
def test_a_denial_names_the_rule_to_add(
    store: tuple[str, str], allowed: str, rule: str, run_headwater: Run
) -> None:
    _name, url = store
    with redis.Redis.from_url(url) as client:
        client.execute_command("ACL", "SETUSER", "u", "reset", "on", ">pw", *allowed.split())
        said = run_headwater("add", "s", "v=1", "--url", as_user(url), status=1)
        assert re.search(
            rf"refused the request: NOPERM .*; the user needs the rule {re.escape(rule)}$",
            said.strip(),
        )
        # Then with that rule it works
        client.execute_command("ACL", "SETUSER", "u", rule)
        run_headwater("add", "s", "v=1", "--url", as_user(url))
