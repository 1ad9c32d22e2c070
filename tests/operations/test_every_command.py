"""Every command, on every kind of store: what it prints is what happened.

`TABLE` has a row for each command. A command that looks changes nothing. A command that acts changes nothing with
``--dry-run``, without an answer, and for a user without the right to; else it does what it prints, and leaves a
record of who did it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis

import headwater
from headwater.cli.command import CommandGroup
from headwater.cli.main import WORDS, load
from headwater.cli.output import UNHEALTHY
from headwater.messages.dead import dead_letter_fields
from headwater.messages.keys import PARKED_CONSUMER
from headwater.testing.server import server_process
from tests import peers
from tests.command_line import in_thread

pytestmark = pytest.mark.slow

ELSEWHERE = {
    "serve": "tests/e2e/test_service.py",
    "work": "tests/worker/test_work.py",
    "exporter": "tests/operations/test_exporter.py",
    "pipeline plan": "tests/spark/test_pipeline_commands.py",
    "pipeline run": "tests/spark/test_declarative.py",
    "pipeline status": "tests/spark/test_pipeline_between_runs.py",
    "pipeline quality": "tests/spark/test_pipeline_commands.py",
    "pipeline backfill": "tests/spark/test_backfill.py",
    "pipeline replay": "tests/spark/test_examples.py",
    "pipeline repair": "tests/spark/test_time_zones.py",
    "spark pack": "tests/spark/test_packing.py",
    "spark env": "tests/spark/test_sessions.py",
    "demo": "tests/e2e/test_demo.py",
}
"""Commands that run until they are stopped, or need Spark, and where they are tested."""

SETTLED, IN_FLIGHT, DELAYED, UNREAD, LETTER = "1-1", "2-1", "3-1", "4-1", "9-1"
SCHEDULED = "5-1"


class Row(NamedTuple):
    """A command, with ``{dir}`` for the directory of the store and ``{new}`` for one that does not exist."""

    words: str
    says: str
    """What it prints on standard output when it has looked, or acted."""
    status: int = 0
    acts: str = ""
    """The action in the record, if it changes something."""
    done: Callable[[Mapping[str, Any]], bool] = lambda _now: True
    """Whether the state afterwards is what the command printed."""
    entries: int = 1
    """The number of entries in the record."""
    asks: bool = True
    """It asks before it acts."""
    on_disk: bool = False
    """It reads the directory of a Headwater store."""
    alone: bool = False
    """No server may use the directory."""
    forbidden: str = ""
    """What it says to a user who may only read; empty: it works for them as well."""


TABLE = [
    Row("info --short", "headwater"),
    Row("explain s g --window 0s", "s, group g: healthy", forbidden="s, group g: unknown"),
    Row("doctor s", "rights", forbidden="unknown  rights"),
    Row("replicas", "no replicas", forbidden="its role and its replicas (INFO)"),
    Row("streams list", "s "),
    Row("groups list s", "g "),
    Row("lag s", "g "),
    Row("tail s", f"{UNREAD}  n=4"),
    Row("dead list s", LETTER),
    Row(f"dead show s {LETTER}", "ValueError: no"),
    Row("pending list s g", "in flight"),
    Row(f"pending show s g {IN_FLIGHT}", "n = 2"),
    Row("retries list s g", DELAYED),
    Row("consumers list s g", "idle"),
    Row("add s n=5", "-0", acts="-", done=lambda now: len(now["entries"]) == 5),
    Row(
        "streams trim s --maxlen 1",
        "3 entries of s removed",
        acts="trim",
        done=lambda now: now["entries"] == [UNREAD],
        entries=3,
    ),
    Row(
        "groups reset s g --to 0",
        "position of group g of s set to 0-0",
        acts="reset",
        done=lambda now: now["last"] == "0-0",
        entries=3,
    ),
    Row(
        f"dead replay s {LETTER}",
        "1-1 is pending in group g again",
        acts="replay",
        done=lambda now: now["letters"] == [] and now["pending"][SETTLED] == ("", 0),
        asks=False,
    ),
    Row(
        f"dead drop s {LETTER}",
        "1 dropped",
        acts="drop",
        done=lambda now: now["letters"] == [],
        asks=False,
    ),
    Row("dead drop s --all", "1 dropped", acts="drop", done=lambda now: now["letters"] == []),
    Row(
        f"pending release s g {IN_FLIGHT}",
        "1 handed back",
        acts="release",
        done=lambda now: now["pending"][IN_FLIGHT] == ("", 1),
    ),
    Row(
        f"pending claim s g {IN_FLIGHT} --to idle",
        "1 given to idle",
        acts="claim",
        done=lambda now: now["pending"][IN_FLIGHT] == ("idle", 1),
    ),
    Row(
        "pending ack s g --all",
        "2 acknowledged",
        acts="acknowledge",
        entries=2,
        done=lambda now: now["pending"] == {} and len(now["letters"]) == 1,
    ),
    Row(
        "pending bury s g --all",
        "2 buried",
        acts="bury",
        entries=2,
        done=lambda now: now["pending"] == {} and len(now["letters"]) == 3,
    ),
    Row(
        f"retries run s g {DELAYED}",
        "1 made due",
        acts="release",
        done=lambda now: now["due"] == [],
    ),
    Row(
        "consumers reap s g --unseen 0s",
        "1 consumer removed",
        acts="reap",
        done=lambda now: now["consumers"] == ["one"],
    ),
    Row("scheduled list s", SCHEDULED),
    Row(
        f"scheduled cancel s {SCHEDULED}",
        "1 cancelled",
        acts="cancel",
        done=lambda now: now["later"] == [],
    ),
    Row("acl worker s", "ACL SETUSER worker on"),
    Row("acl viewer s", "ACL SETUSER viewer on"),
    Row("acl exporter", "ACL SETUSER exporter on"),
    Row("acl replica", "ACL SETUSER replica on"),
    Row("acl sentinel", "ACL SETUSER sentinel on"),
    Row("acl spark s", "ACL SETUSER spark on"),
    Row("history s 1-1 --dir {dir}", "added", on_disk=True),
    Row("backup {dir} {new}", "files, ", on_disk=True),
    Row("restore {dir} --to {new}", "files, ", on_disk=True),
    Row("check {dir}", "healthy", on_disk=True, alone=True),
    Row("repair {dir} --to {new}", "nothing to repair", on_disk=True, alone=True),
    Row("store {dir}", "journal", on_disk=True),
    Row("journal verify {dir}", "journal-000001", on_disk=True),
    Row("journal dump {dir}", "stream created", on_disk=True),
]
ACTIONS = [one for one in TABLE if one.acts]


class Store(NamedTuple):
    """A store, and how it is reached: by the user of the command line, and by one who may do everything."""

    url: str
    admin: str
    directory: Path
    user: str
    """Who acts; empty if it is the user who runs the program."""
    headwater: bool = True

    @contextmanager
    def client(self) -> Iterator[redis.Redis]:
        with headwater.connect(self.admin) as client:
            yield client


STORES = ("headwater", "embedded", "redis-8.2", "valkey-9.1")


@pytest.fixture(scope="module", params=STORES)
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Store]:
    """One store of each kind; where there are users, ``ann`` runs the commands, and ``eve`` may only read."""
    path = tmp_path_factory.mktemp("every")
    if request.param == "embedded":
        url = f"headwater://{path / 'data'}"
        headwater.connect(url).close()
        yield Store(url, url, path / "data", "")
    elif request.param == "headwater":
        with server_process("--save", "") as server:
            yield with_users(server.url, server.data)
    else:
        try:
            with peers.running(request.param, "--appendonly", "yes") as peer:
                yield with_users(peer.url, peer.directory)._replace(headwater=False)
        except peers.PeerMissing as missing:
            assert not peers.required()
            pytest.skip(str(missing))


def with_users(url: str, directory: Path) -> Store:
    with redis.Redis.from_url(url) as client:
        client.acl_setuser(
            "ann", enabled=True, nopass=True, keys="*", channels="*", commands=["+@all"]
        )
        client.acl_setuser("eve", enabled=True, nopass=True, keys="*", commands=["+@read", "+time"])
    return Store(url.replace("redis://", "redis://ann:x@"), url, directory, "ann")


def stage(client: Any) -> None:
    """Four entries in each state, two consumers, and a dead letter."""
    client.flushall()
    for n in range(1, 5):
        client.xadd("s", {"n": n}, id=f"{n}-1")
    client.xgroup_create("s", "g", "0")
    client.xgroup_createconsumer("s", "g", "idle")
    client.xreadgroup("g", "one", {"s": ">"}, count=3)
    client.xack("s", "g", SETTLED)
    try:
        client.execute_command(*f"XSETTLE s g one FAIL DELAY 3600000 IDS 1 {DELAYED}".split())
    except redis.ResponseError:  # Redis or Valkey
        client.xclaim("s", "g", PARKED_CONSUMER, 0, [DELAYED], justid=True)
        client.zadd("{s}:hw:delays:g", {DELAYED: 2**42})
    letter = dead_letter_fields(
        [b"n", b"1"],
        stream="s",
        group="g",
        entry_id=SETTLED,
        consumer="one",
        deliveries=3,
        error="ValueError: no",
        trace="",
        at_ms=1526569498055,
    )
    client.xadd("{s}.dead", dict(letter), id=LETTER)
    client.xadd("{s}:hw:later", {"n": 5, "hw.after": 2**42}, id=SCHEDULED)


def state(client: Any) -> dict[str, Any]:
    """What a command could change."""
    rows = client.xpending_range("s", "g", "-", "+", 100)
    consumers = [one["name"].decode() for one in client.xinfo_consumers("s", "g")]
    keys = client.keys()
    return {
        "entries": [one[0].decode() for one in client.xrange("s")],
        "later": client.xrange("{s}:hw:later"),
        "letters": [one[0].decode() for one in client.xrange("{s}.dead")],
        "pending": {one["message_id"].decode(): owner(one) for one in rows},
        "due": due(client),
        "last": client.xinfo_groups("s")[0]["last-delivered-id"].decode(),
        "consumers": sorted(one for one in consumers if not one.startswith("hw.")),
        "keys": sorted(one for one in keys if one not in (b"{s}:hw:actions", b"{s}:hw:delays:g")),
    }


def owner(row: Mapping[str, Any]) -> tuple[str, int]:
    name = row["consumer"].decode()
    return "" if name == PARKED_CONSUMER else name, row["times_delivered"]


def due(client: Any) -> list[Any]:
    """The entries that wait for a time in the future."""
    try:
        rows: Any = client.execute_command("XDELAYED", "s", "g", "-", "+", 10)
    except redis.ResponseError:  # Redis or Valkey
        rows = client.zrange("{s}:hw:delays:g", 0, -1, withscores=True)
        return [one for one, at in rows if at > 2**41]
    return [row[0] for row in rows if row[1]]


def options_of(path: str) -> set[str]:
    first, *others = path.split()
    command = load(first)
    for name in others:
        command = command.get_command(Any, name)
    return {option for parameter in command.params for option in parameter.opts}


def path_of(words: Sequence[str]) -> str:
    two = " ".join(words[:2])
    return two if two in PATHS else words[0]


def _leaves(command: Any, path: str) -> Iterator[str]:
    if isinstance(command, CommandGroup):
        for name in command.list_commands(Any):
            yield from _leaves(command.get_command(Any, name), f"{path} {name}")
    else:
        yield path


PATHS = {path for word in WORDS for path in _leaves(load(word), word)}


def test_every_command_is_tested() -> None:
    named = [path_of(row.words.split()) for row in TABLE]
    assert {*named, *ELSEWHERE} == PATHS
    assert not {*named} & {*ELSEWHERE}
    for command, file in ELSEWHERE.items():
        text = Path(file).read_text()
        assert all(word in text for word in command.split()), command


@pytest.fixture
def run(store: Store, tmp_path: Path) -> Callable[..., tuple[int, str, str]]:
    """Run a command of the table on the store; returns its status, its output and its complaint."""

    def found(words: str, *more: str, user: str = "", answer: str = "") -> tuple[int, str, str]:
        typed = [
            word.replace("{dir}", str(store.directory)).replace("{new}", str(tmp_path / "new"))
            for word in words.split()
        ]
        if "--url" in options_of(path_of(typed)):
            url = store.url.replace("ann:", f"{user}:") if user else store.url
            more = (*more, "--url", url)
        return in_thread([*typed, *more], answer=answer)

    return found


Run = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.words)
def test_a_command_prints_what_happened(store: Store, row: Row, run: Run) -> None:
    # Given a store
    with store.client() as client:
        stage(client)
        before = state(client)
    # When the command is run
    options = options_of(path_of(row.words.split()))
    status, printed, complaint = run(row.words, *(["--yes"] if "--yes" in options else []))
    with store.client() as client:
        now = state(client)
        records: Any = client.xrange("{s}:hw:actions")
    # Then it says so if the directory is not one of Headwater's
    if row.on_disk and not store.headwater:
        assert (status, printed) == (1, "")
        assert "no store" in complaint
        return
    if row.alone and store.user:
        assert (status, printed) == (1, "")
        assert "is in use by process" in complaint
        return
    # Or it has done what it prints
    assert status in {row.status, UNHEALTHY if row.words.startswith("doctor") else 0}, complaint
    assert row.says in printed
    if not row.acts:
        assert (now, records) == (before, [])
        return
    assert now != before
    assert row.done(now), now
    # And who did it is recorded
    if row.acts != "-":
        ((_id, record),) = records
        assert record[b"action"].decode() == row.acts
        assert record[b"user"].decode() == (store.user or os_user())
        assert (int(record[b"entries"]), record[b"refused"]) == (row.entries, b"0")


def os_user() -> str:
    import getpass

    return getpass.getuser()


@pytest.mark.parametrize("row", ACTIONS, ids=lambda row: row.words)
def test_a_command_that_is_not_confirmed_changes_nothing(store: Store, row: Row, run: Run) -> None:
    if row.acts == "-":
        return
    # Given a store
    with store.client() as client:
        stage(client)
        before = state(client)
    # When the command is run to try it, and then without an answer
    status, tried, complaint = run(row.words, "--dry-run")
    # Then it says what it would do, asks, and changes nothing
    assert status == 0, complaint
    assert row.says not in tried
    if row.asks:
        unanswered, _printed, question = run(row.words)
        assert unanswered == 1
        assert "? [y/N]" in question
    with store.client() as client:
        assert (state(client), client.xrange("{s}:hw:actions")) == (before, [])


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.words)
def test_a_user_who_may_only_read_is_told_so(store: Store, row: Row, run: Run) -> None:
    if not store.user or row.on_disk:
        return
    # Given a store
    with store.client() as client:
        stage(client)
        before = state(client)
    # When a user who may only read runs the command
    options = options_of(path_of(row.words.split()))
    status, printed, complaint = run(
        row.words, *(["--yes"] if "--yes" in options else []), user="eve"
    )
    # Then nothing is changed, nothing else is said, and nothing unknown is called good
    with store.client() as client:
        assert (state(client), client.xrange("{s}:hw:actions")) == (before, [])
    if row.acts:
        assert status == 1
        assert row.says not in printed
        assert "NOPERM" in complaint or "no permissions" in complaint
        return
    assert status in (0, UNHEALTHY), complaint
    assert (row.forbidden or row.says) in printed


@pytest.mark.parametrize("answer", ["", "y\n"], ids=["--yes", "a question"])
@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.words)
def test_json_is_one_document(store: Store, row: Row, answer: str, run: Run) -> None:
    if (row.on_disk and not store.headwater) or (row.alone and store.user):
        return
    options = options_of(path_of(row.words.split()))
    if "--output" not in options or (answer and not row.asks):
        return
    with store.client() as client:
        stage(client)
    yes = ["--yes"] if "--yes" in options and not answer else []
    _status, printed, _complaint = run(row.words, *yes, "-o", "json", answer=answer)
    whole = printed.startswith(("[\n", "{\n", "[]"))
    for document in [printed] if whole else printed.splitlines():
        json.loads(document)
