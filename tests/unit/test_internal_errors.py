"""An exception that no client caused ends its own command, and the node only if a change may be incomplete."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator

import pytest

from headwater.commands.call import Call
from headwater.commands.dispatch import find_command
from headwater.engine.check import broken_invariants
from headwater.engine.keyspace.events import GENERIC
from headwater.resp.arguments import Arguments
from headwater.server.services import pubsub
from headwater.server.services.faults import REST_S, fault_id
from headwater.server.services.observability import latency, monitors, slowlog
from headwater.server.services.scripting import interpreter
from headwater.server.turn import due
from headwater.testing.node import LocalClient, LocalStore, request
from headwater.testing.replies import Failure, Nil, Simple

OK = Simple(b"OK")


@pytest.fixture(params=["embedded", "tcp"])
def kind(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


@pytest.fixture(params=[True, False], ids=["journal", "no journal"])
def store(request: pytest.FixtureRequest) -> Iterator[LocalStore]:
    made = LocalStore(journaled=request.param)
    client = made.client()
    for seq in range(1, 5):
        client("XADD", "s", f"1-{seq}", "n", seq)
    client("XGROUP", "CREATE", "s", "g", "0")
    yield made
    if made.node.state.poisoned is None:
        assert broken_invariants(made.node.keyspace) == []


@pytest.fixture
def client(store: LocalStore, kind: str) -> LocalClient:
    return store.client(kind=kind)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.ERROR, "headwater"):
        yield caplog


def broken(_call: Call) -> None:
    raise IndexError("planted")


def fails(*_arguments: object) -> None:
    raise IndexError("planted")


def breaks_after_admission(call: Call) -> None:
    call.admit(100)
    call.db.set_string(b"half", b"done")
    raise IndexError("planted")


def breaks_in_its_reply(call: Call) -> None:
    call.reply.array(3)
    call.reply.bulk(b"one")
    raise IndexError("planted")


def plant(patch: pytest.MonkeyPatch, function: object, *words: bytes) -> None:
    """Replace the function of a command."""
    patch.setattr(find_command(Arguments.of(*words)), "function", function)


def said(reply: object) -> str:
    """Return the id that the log must explain."""
    assert isinstance(reply, Failure), reply
    found = re.match(rb"ERR internal error ([0-9a-f]{8}): ", reply.text)
    assert found is not None, reply.text
    return found[1].decode()


@pytest.mark.parametrize("function", [broken, breaks_in_its_reply])
def test_a_command_that_fails_before_a_change_is_an_error_and_nothing_else_is_affected(
    function: object,
    store: LocalStore,
    client: LocalClient,
    log: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Given an internal error in a read
    plant(monkeypatch, function, b"XLEN", b"s")

    # When it is between other requests of one turn
    client._exchange(request(("SET", "k", "1")) + request(("XLEN", "s")) + request(("GET", "k")))

    # Then it alone fails, the log explains its id, and the store goes on
    assert client.reply() == OK
    number = said(client.reply())
    assert client.reply() == b"1"
    assert client.reply() is None
    (record,) = [one for one in log.records if number in one.getMessage()]
    assert record.exc_info is not None
    monkeypatch.undo()
    assert store.client()("XLEN", "s") == 4
    assert "internal_errors:1\r\n" in str(client("INFO", "stats"), "latin-1")  # type: ignore[arg-type]


def test_each_part_of_a_transaction_fails_alone(
    store: LocalStore, client: LocalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given an internal error in one command of a transaction
    plant(monkeypatch, broken, b"XLEN", b"s")
    client("MULTI")
    for words in (("SET", "k", "1"), ("XLEN", "s"), ("SET", "l", "2")):
        client(*words)

    # Then the others stand, also after a crash
    first, second, third = client("EXEC")  # type: ignore[misc]
    assert (first, third) == (OK, OK)
    said(second)
    if store.files is not None:
        store.crash()
    assert store.client()("MGET", "k", "l") == [b"1", b"2"]


def test_a_script_that_meets_an_internal_error_keeps_what_it_wrote(
    store: LocalStore, client: LocalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, broken, b"XLEN", b"s")
    script = "redis.call('SET', 'k', '1') return redis.pcall('XLEN', 's')"
    said(client("EVAL", script, 0))
    assert isinstance(client("EVAL", "return redis.call('XLEN', 's')", 0), Failure)
    assert store.client()("GET", "k") == b"1"


REMAINS = b"what the script wrote remains"


@pytest.mark.parametrize(
    ("call", "told", "value"),
    [
        ("redis.call('XLEN', 's')", b"xlen could not be executed, and has changed nothing; ", b"1"),
        ("bit.tobit(1)", b"eval could not be executed, and ", b"1"),
        ("pcall(bit.tobit, 1)", b"eval could not be executed, and ", b"2"),
    ],
)
@pytest.mark.parametrize("within", ["alone", "transaction"])
def test_an_internal_error_of_a_script_says_that_what_it_wrote_remains(
    call: str,
    told: bytes,
    value: bytes,
    within: str,
    store: LocalStore,
    client: LocalClient,
    log: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Given a script that writes before it meets an internal error, of a command or of its own
    plant(monkeypatch, broken, b"XLEN", b"s")
    monkeypatch.setattr(interpreter, "bits", fails)
    script = f"redis.call('SET', 'k', '1') local x = {call} return redis.call('SET', 'k', '2')"
    if within == "transaction":
        client("MULTI")
        client("EVAL", script, 0)
        (reply,) = client("EXEC")  # type: ignore[misc]
    else:
        reply = client("EVAL", script, 0)

    # Then the error and the log say what is the case
    number = said(reply)
    assert told + REMAINS in reply.text  # type: ignore[union-attr]
    (record,) = [one for one in log.records if number in one.getMessage()]
    assert REMAINS.decode() in record.getMessage()
    assert store.client()("GET", "k") == value
    if store.files is not None:
        store.crash()
        assert store.client()("GET", "k") == value


def watch_slowly(store: LocalStore) -> None:
    store.client()("CONFIG", "SET", "slowlog-log-slower-than", 0)


def watch_latency(store: LocalStore) -> None:
    store.client()("CONFIG", "SET", "latency-tracking", "yes")


def monitor(store: LocalStore) -> None:
    store.client(kind="tcp").send("MONITOR")


def subscribe(store: LocalStore) -> None:
    client = store.client(kind="tcp")
    client("CONFIG", "SET", "notify-keyspace-events", "KEA")
    client.send("PSUBSCRIBE", "__key*__:*")


OBSERVERS: dict[str, tuple[Callable[[LocalStore], None], object, str]] = {
    "slow log": (watch_slowly, slowlog.SlowLog, "add"),
    "latency": (watch_latency, latency.Histogram, "add"),
    "monitor": (monitor, monitors.Monitors, "send"),
    "keyspace events": (subscribe, pubsub.PubSub, "publish"),
}


@pytest.mark.parametrize("name", list(OBSERVERS))
def test_an_observer_that_fails_is_logged_and_ends_nothing(
    name: str,
    store: LocalStore,
    client: LocalClient,
    log: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Given something that observes commands and fails
    start, owner, method = OBSERVERS[name]
    start(store)
    monkeypatch.setattr(owner, method, fails)

    # When commands write: alone, in a transaction, in a script, after waiting, and one that fails
    assert client("SET", "k", "1") == OK
    client("MULTI")
    client("SET", "l", "2")
    assert client("EXEC") == [OK]
    assert client("EVAL", "return redis.call('SET', 'm', '3')", 0) == OK
    waiting = store.client(kind="tcp")
    waiting.send("BLPOP", "list", 0)
    assert client("RPUSH", "list", "v") == 1
    assert waiting.reply() == [b"list", b"v"]
    assert client("XADD", "k", "*", "a", "b") == Failure(
        b"WRONGTYPE Operation against a key holding the wrong kind of value"
    )

    # Then each is answered and stays, and the log has the reason with an id
    assert any(
        re.search(r"internal error [0-9a-f]{8}: (recording|publishing)", one.getMessage())
        and one.exc_info
        for one in log.records
    )
    if store.files is not None:
        store.crash()
    assert store.client()("MGET", "k", "l", "m") == [b"1", b"2", b"3"]


def test_a_commit_whose_duration_cannot_be_recorded_is_answered(
    store: LocalStore, client: LocalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client("CONFIG", "SET", "latency-monitor-threshold", 1)
    monkeypatch.setattr(latency.LatencyMonitor, "add", fails)
    assert client("SET", "k", "1") == OK
    assert store.client()("GET", "k") == b"1"


@pytest.mark.parametrize("within", ["alone", "transaction", "script"])
def test_a_command_that_fails_after_its_first_change_poisons_the_node(
    within: str, store: LocalStore, client: LocalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a write that fails when it has written a fact, and an unsent reply of the same turn
    plant(monkeypatch, breaks_after_admission, b"XLEN", b"s")
    written = request(("SET", "k", "1"))
    if within == "transaction":
        client("MULTI")
        client("XLEN", "s")
        failing = request(("EXEC",))
        written = b""
    elif within == "script":
        failing = request(("EVAL", "return redis.pcall('XLEN', 's')", 0))
    else:
        failing = request(("XLEN", "s"))

    # Then the turn is aborted, and nothing is answered that a restart would not have
    with pytest.raises(IndexError, match="planted"):
        client._exchange(written + failing)
    assert client.reply() is None
    monkeypatch.undo()
    refused = store.client()("GET", "half")
    assert isinstance(refused, Failure)
    assert refused.text.startswith(b"MISCONF a turn was aborted by IndexError")
    if store.files is not None:
        store.crash()
        assert store.client()("MGET", "k", "half") == [Nil.BULK, Nil.BULK]


def test_a_blocked_command_that_fails_gets_the_error_and_those_behind_it_are_served(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given two blocked readers, and an internal error that only the first one meets
    first, second = store.client(kind="tcp"), store.client(kind="tcp")
    known = find_command(Arguments.of(b"BLPOP", b"l", b"0"))
    function, runs = known.function, []

    def breaks_once(call: Call) -> object:
        runs.append(1)
        if len(runs) == 3:
            raise IndexError("planted")
        return function(call)  # type: ignore[misc]

    monkeypatch.setattr(known, "function", breaks_once)
    first.send("BLPOP", "l", 0)
    second.send("BLPOP", "l", 0)

    # When a value arrives
    assert store.client()("RPUSH", "l", "v") == 1

    # Then the first one gets an error, and the second one the value
    said(first.reply())
    assert second.reply() == [b"l", b"v"]
    assert first("PING") == Simple(b"PONG")


@pytest.mark.parametrize("name", ["expire_keys", "end_delays", "forget_iids"])
def test_a_timer_that_fails_rests_and_the_others_go_on(
    name: str, store: LocalStore, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a timer with an internal error, a key that expires, and a blocked client
    client, waiting = store.client(), store.client(kind="tcp")
    client("SET", "mortal", "x", "PX", 50)
    waiting.send("BLPOP", "l", "0.06")
    monkeypatch.setattr(due, name, fails)

    # When both are due
    store.advance(0.1)

    # Then the timeout ends, the error is logged, and it is not tried again at once
    assert waiting.reply() is Nil.ARRAY
    assert "internal error" in log.text
    assert store.node.state.rests_until > store.clock.monotonic()
    deadline = store.node.next_deadline()
    assert deadline is None or deadline >= store.node.state.rests_until

    # And the timer does its work when the error is gone
    monkeypatch.undo()
    store.advance(REST_S + 0.1)
    assert client("DBSIZE") == 1


def test_a_timer_that_fails_in_the_middle_of_a_change_poisons_the_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Given a timer that fails after it has begun a record group
    store = LocalStore()
    client = store.client()
    client("SET", "mortal", "x", "PX", 50)

    def breaks(keyspace: object, records: object, _now_ms: int) -> None:
        records.begin()  # type: ignore[attr-defined]
        store.node.keyspace.databases[0].set_string(b"half", b"done")
        raise IndexError("planted")

    monkeypatch.setattr(due, "expire_keys", breaks)
    with pytest.raises(IndexError, match="planted"):
        store.advance(0.1)
    assert isinstance(store.client()("GET", "half"), Failure)
    store.crash()
    assert store.client()("GET", "half") is Nil.BULK


def test_a_listener_of_events_that_fails_does_not_undo_the_change(
    store: LocalStore, client: LocalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a command that notifies and then fails before a change
    client("CONFIG", "SET", "notify-keyspace-events", "KEA")
    other = store.client(kind="tcp")
    other("PSUBSCRIBE", "__key*__:*")

    def notifies(call: Call) -> None:
        call.notify(GENERIC, b"del", b"s")
        raise IndexError("planted")

    plant(monkeypatch, notifies, b"XLEN", b"s")

    # Then subscribers do not hear of a change that did not happen
    said(client("XLEN", "s"))
    store.node.tick()
    assert other.reply() is None


def test_an_id_stands_for_the_place_and_the_log_is_limited(
    client: LocalClient, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a client that repeats a command with an internal error
    plant(monkeypatch, broken, b"XLEN", b"s")
    numbers = {said(client("XLEN", "s")) for _ in range(1000)}

    # Then there is one id, and a bounded number of lines
    assert len(numbers) == 1
    assert len(log.records) <= 10


def test_ids_differ_by_place() -> None:
    def other() -> None:
        raise IndexError("planted")

    found = set()
    for function in (fails, other):
        try:
            function()
        except IndexError as error:
            found.add(fault_id(error))
    assert len(found) == 2
