"""The wall clock is set while the store is closed, or while a client is blocked."""

from __future__ import annotations

from itertools import pairwise

import pytest

from headwater.testing.clock import START_MS
from headwater.testing.node import LocalClient, LocalStore
from headwater.testing.replies import Nil

HOUR = 3600
JUMPS = [pytest.param(HOUR, id="forward"), pytest.param(-HOUR, id="back")]


def info(client: LocalClient, field: str) -> str:
    text = client("INFO", "server")
    assert isinstance(text, bytes)
    return dict(line.split(":", 1) for line in text.decode().split("\r\n") if ":" in line)[field]


def deliver(client: LocalClient) -> bytes:
    """Deliver an entry to ann and return its id."""
    added = client("XADD", "s", "*", "n", "1")
    assert isinstance(added, bytes)
    client("XGROUP", "CREATE", "s", "g", "0")
    client("XREADGROUP", "GROUP", "g", "ann", "STREAMS", "s", ">")
    return added


# --- restarts ---------------------------------------------------------------------------------------


def test_ages_and_delays_continue_from_the_last_record_if_the_wall_clock_was_set_back() -> None:
    # Given a delayed entry (2 s), a pending entry, and a key that expires in 5 s
    store = LocalStore()
    client = store.client()
    delayed = deliver(client)
    client("XSETTLE", "s", "g", "ann", "FAIL", "DELAY", 2000, "IDS", 1, delayed)
    pending = client("XADD", "s", "*", "n", "2")
    client("XREADGROUP", "GROUP", "g", "ann", "STREAMS", "s", ">")
    client("SET", "k", "v", "PX", 5000)
    # When the store restarts with a wall clock that is an hour behind
    store.clock.jump(-HOUR)
    store.crash()
    client = store.client()
    # Then nothing is frozen for an hour
    assert client("PTTL", "k") == 5000
    store.advance(2)
    assert client("XAUTOCLAIM", "s", "g", "bob", 0, "0", "JUSTID") == [
        b"0-0",
        [delayed, pending],
        [],
    ]
    store.advance(3)
    assert client("EXISTS", "k") == 0
    # And the jump is reported
    assert info(client, "clock_last_jump_ms") == str(-HOUR * 1000)


def test_time_while_the_store_is_closed_counts() -> None:
    store = LocalStore()
    client = store.client()
    deliver(client)
    client("SET", "k", "v", "EX", 60)
    store.clock.advance(HOUR)
    store.crash()
    client = store.client()
    assert client("EXISTS", "k") == 0
    assert client("XPENDING", "s", "g", "-", "+", 1) == [
        [b"%d-0" % START_MS, b"ann", HOUR * 1000, 1]
    ]
    assert info(client, "clock_jumps") == "0"


@pytest.mark.parametrize("seconds", JUMPS)
def test_absolute_times_are_shown_by_the_wall_clock_after_a_restart_too(seconds: int) -> None:
    store = LocalStore()
    client = store.client()
    deliver(client)
    store.clock.jump(seconds)
    store.crash()
    client = store.client()
    at_ms = store.clock.now_ms() + 10_000
    client("SET", "k", "v", "PXAT", at_ms)
    assert client("PEXPIRETIME", "k") == at_ms
    assert client("PTTL", "k") == 10_000
    assert client("XADD", "new", "*", "n", "1") == b"%d-0" % store.clock.now_ms()


def test_times_in_the_journal_never_decrease() -> None:
    store = LocalStore()
    for seconds in (HOUR, -3 * HOUR, -HOUR, 2 * HOUR, -HOUR):
        client = store.client()
        client("XADD", "s", "*", "n", "1")
        store.clock.jump(seconds)
        client("XADD", "s", "*", "n", "1")
        store.clock.advance(1)
        client("XADD", "s", "*", "n", "1")
        store.crash()
    times = [now_ms for _, now_ms in store.groups()]
    assert all(before <= after for before, after in pairwise(times))
    ids = store.client()("XRANGE", "s", "-", "+")
    assert isinstance(ids, list)
    assert len(ids) == 15


def test_an_idmp_window_is_as_long_after_a_restart() -> None:
    # Given a wall clock that was set back, so that an entry id is an hour older than its iid
    store = LocalStore()
    store.clock.jump(-HOUR)
    client = store.client()
    first = client("XADD", "s", "IDMP", "p", "i", "*", "n", "1")
    # When the store restarts, then the iid is known for as long as without the restart
    store.advance(50)
    client("SET", "mark", "1")
    store.crash()
    client = store.client()
    assert client("XADD", "s", "IDMP", "p", "i", "*", "n", "1") == first
    store.advance(49)
    assert client("XADD", "s", "IDMP", "p", "i", "*", "n", "1") == first
    store.advance(2)
    assert client("XADD", "s", "IDMP", "p", "i", "*", "n", "1") != first


# --- blocked clients --------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", JUMPS)
def test_a_blocking_read_times_out_by_elapsed_time(seconds: int) -> None:
    store = LocalStore(journaled=False)
    waiting = store.client()
    waiting.send("XREAD", "BLOCK", 2000, "STREAMS", "s", "$")
    store.clock.jump(seconds)
    assert store.seconds_ahead() == 2
    store.advance(1.9)
    assert waiting.reply() is None
    store.advance(0.1)
    assert waiting.reply() == Nil.ARRAY


@pytest.mark.parametrize("seconds", JUMPS)
def test_a_reader_with_claim_is_served_when_an_entry_has_been_idle_long_enough(
    seconds: int,
) -> None:
    # Given a reader that waits for new entries and for entries idle for 5 s
    store = LocalStore(journaled=False)
    deliver(store.client())
    waiting = store.client()
    waiting.send(
        "XREADGROUP", "GROUP", "g", "bob", "BLOCK", 0, "CLAIM", 5000, "STREAMS", "s", ">"
    )  # fmt: skip
    # When the wall clock jumps, then it waits as long as before
    store.clock.jump(seconds)
    store.node.tick()
    assert waiting.reply() is None
    store.advance(4.999)
    assert waiting.reply() is None
    store.advance(0.001)
    assert isinstance(waiting.reply(), list)


@pytest.mark.parametrize("seconds", JUMPS)
def test_timers_are_due_after_the_same_elapsed_time(seconds: int) -> None:
    for words, ahead in (
        (("SET", "k", "v", "PX", 1500), 1.5),
        (("XADD", "s", "IDMP", "p", "i", "*", "n", "1"), 100),
    ):
        store = LocalStore(journaled=False)
        store.client()(*words)
        store.clock.jump(seconds)
        store.node.tick()
        assert store.seconds_ahead() == ahead
