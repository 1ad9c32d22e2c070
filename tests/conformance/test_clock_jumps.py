"""The wall clock jumps by an hour: ages, delays and expiries continue by elapsed time; new ids,
TIME and absolute times follow the wall clock.

Tests with the fixture ``store`` run on an embedded store and on a server.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis

import headwater
from headwater.config.config import Config
from headwater.testing.clock import ManualClock
from headwater.testing.server import server_thread

HOUR = 3600
HOUR_MS = HOUR * 1000
JUMPS = [pytest.param(HOUR, id="forward"), pytest.param(-HOUR, id="back")]


class MovableStore:
    """A store with a clock that a test moves: ``clock.jump`` sets the wall clock, ``pass_time`` lets seconds pass."""

    def __init__(self, clock: ManualClock, client: Any, pass_time: Callable[[float], None]) -> None:
        self.clock = clock
        self.client = client
        self.pass_time = pass_time

    def run(self, *words: object) -> Any:
        """Send a command and return the reply."""
        return self.client.execute_command(*words)

    def pending(self, key: str, group: str) -> list[tuple[bytes, int]]:
        """Return pending ids with their idle times in ms."""
        rows = self.client.xpending_range(key, group, "-", "+", 100)
        return [(row["message_id"], row["time_since_delivered"]) for row in rows]

    def deliver(self, key: str, group: str) -> None:
        """Create a stream and a group, and deliver one entry to the consumer ann."""
        self.run("XADD", key, "*", "n", "1")
        self.run("XGROUP", "CREATE", key, group, "0")
        self.run("XREADGROUP", "GROUP", group, "ann", "STREAMS", key, ">")


@contextmanager
def embedded() -> Iterator[MovableStore]:
    clock = ManualClock()
    with headwater.connect("headwater://memory", clock=clock) as client:
        yield MovableStore(clock, client, clock.advance)


@contextmanager
def served() -> Iterator[MovableStore]:
    clock = ManualClock()
    with (
        server_thread(Config(port=0, appendonly=False, save=()), clock=clock) as server,
        redis.Redis.from_url(server.url) as client,
    ):
        yield MovableStore(clock, client, server.advance)


@pytest.fixture(params=[embedded, served], ids=["embedded", "server"])
def store(request: pytest.FixtureRequest) -> Iterator[MovableStore]:
    with request.param() as made:
        yield made


# --- ages -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", JUMPS)
def test_xautoclaim_claims_by_elapsed_time(store: MovableStore, seconds: int) -> None:
    # Given an entry that was delivered just now
    store.deliver("s", "g")
    # When the wall clock jumps, then it is not claimed
    store.clock.jump(seconds)
    assert store.run("XAUTOCLAIM", "s", "g", "bob", 60_000, "0")[1] == []
    # When a minute has passed, then it is claimed
    store.pass_time(60)
    assert len(store.run("XAUTOCLAIM", "s", "g", "bob", 60_000, "0")[1]) == 1


@pytest.mark.parametrize("seconds", JUMPS)
def test_a_renewed_lease_lasts_as_long_as_before(store: MovableStore, seconds: int) -> None:
    # Given an entry that its owner has renewed after 50 s
    store.deliver("s", "g")
    ((id_, _),) = store.pending("s", "g")
    store.pass_time(50)
    store.run("XRENEW", "s", "g", "ann", "IDS", 1, id_)
    # When the wall clock jumps and 50 s pass, then it has been idle for 50 s only
    store.clock.jump(seconds)
    store.pass_time(50)
    assert store.pending("s", "g") == [(id_, 50_000)]
    assert store.run("XCLAIM", "s", "g", "bob", 60_000, id_) == []


@pytest.mark.parametrize("seconds", JUMPS)
def test_a_delay_ends_when_its_time_has_passed(store: MovableStore, seconds: int) -> None:
    # Given an entry with a delay of 2 s
    store.deliver("s", "g")
    ((id_, _),) = store.pending("s", "g")
    store.run("XSETTLE", "s", "g", "ann", "FAIL", "DELAY", 2000, "IDS", 1, id_)
    # When the wall clock jumps, then the delay ends neither at once nor an hour late
    store.clock.jump(seconds)
    store.pass_time(1.9)
    assert store.run("XAUTOCLAIM", "s", "g", "bob", 0, "0")[1] == []
    store.pass_time(0.1)
    assert len(store.run("XAUTOCLAIM", "s", "g", "bob", 0, "0")[1]) == 1


@pytest.mark.parametrize("seconds", JUMPS)
def test_ex_px_and_pexpire_end_when_their_time_has_passed(
    store: MovableStore, seconds: int
) -> None:
    store.run("SET", "ex", "1", "EX", 10)
    store.run("SET", "px", "1", "PX", 10_000)
    store.run("SET", "later", "1")
    store.run("PEXPIRE", "later", 10_000)
    store.clock.jump(seconds)
    assert [store.run("PTTL", key) for key in ("ex", "px", "later")] == [10_000] * 3
    store.pass_time(9.999)
    assert store.run("EXISTS", "ex", "px", "later") == 3
    store.pass_time(0.001)
    assert store.run("EXISTS", "ex", "px", "later") == 0


@pytest.mark.parametrize("seconds", JUMPS)
def test_seen_and_active_times_are_ages_by_elapsed_time(store: MovableStore, seconds: int) -> None:
    store.deliver("s", "g")
    store.clock.jump(seconds)
    store.pass_time(5)
    (ann,) = store.client.xinfo_consumers("s", "g")
    assert (ann["idle"], ann["inactive"]) == (5000, 5000)


@pytest.mark.parametrize("seconds", JUMPS)
def test_an_idmp_window_lasts_its_configured_time(store: MovableStore, seconds: int) -> None:
    # Given windows of 100 s, one that begins before the jump and one that begins after it
    first = store.run("XADD", "before", "IDMP", "p", "i", "*", "n", "1")
    store.clock.jump(seconds)
    second = store.run("XADD", "after", "IDMP", "p", "i", "*", "n", "1")
    # When less time has passed, then repeated ids are recognized
    store.pass_time(98)
    assert store.run("XADD", "before", "IDMP", "p", "i", "*", "n", "1") == first
    assert store.run("XADD", "after", "IDMP", "p", "i", "*", "n", "1") == second
    # When it has passed, then they are forgotten
    store.pass_time(4)
    assert store.run("XADD", "before", "IDMP", "p", "i", "*", "n", "1") != first
    assert store.run("XADD", "after", "IDMP", "p", "i", "*", "n", "1") != second


@pytest.mark.parametrize("seconds", JUMPS)
def test_object_idletime_is_elapsed_time(store: MovableStore, seconds: int) -> None:
    store.run("SET", "k", "v")
    store.clock.jump(seconds)
    store.pass_time(7)
    assert store.run("OBJECT", "IDLETIME", "k") == 7


@pytest.mark.parametrize("seconds", JUMPS)
def test_uptime_is_elapsed_time(store: MovableStore, seconds: int) -> None:
    store.clock.jump(seconds)
    store.pass_time(7)
    assert store.client.info("server")["uptime_in_seconds"] == 7


@pytest.mark.parametrize("seconds", JUMPS)
def test_the_age_of_a_refusal_is_elapsed_time(store: MovableStore, seconds: int) -> None:
    # Given a command that was refused
    store.run("ACL", "SETUSER", "eve", "on", ">secret", "allkeys", "+@all", "-get")
    store.run("AUTH", "eve", "secret")
    with pytest.raises(redis.exceptions.NoPermissionError):
        store.run("GET", "k")
    # When the wall clock jumps, and it is refused again within a minute
    store.clock.jump(seconds)
    store.pass_time(30)
    with pytest.raises(redis.exceptions.NoPermissionError):
        store.run("GET", "k")
    store.pass_time(5)
    # Then there is one entry, with times of the wall clock
    (entry,) = store.client.acl_log()
    assert (entry["count"], entry["age-seconds"]) == (2, 5.0)
    assert entry["timestamp-last-updated"] == store.clock.now_ms() - 5000
    assert entry["timestamp-created"] == store.clock.now_ms() - 35_000


# --- what follows the wall clock --------------------------------------------------------------------


def test_new_ids_follow_the_wall_clock_and_increase_even_if_it_is_set_back(
    store: MovableStore,
) -> None:
    store.run("XADD", "s", "*", "n", "1")
    # When the wall clock jumps forward, then the next id is its time
    store.clock.jump(HOUR)
    second = store.run("XADD", "s", "*", "n", "2")
    assert second == b"%d-0" % store.clock.now_ms()
    # When it is set back, then the next id has the last one's time and the next sequence number
    store.clock.jump(-2 * HOUR)
    third = store.run("XADD", "s", "*", "n", "3")
    assert third == second.replace(b"-0", b"-1")
    # And the first id of another stream is the wall clock's time
    assert store.run("XADD", "new", "*", "n", "1") == b"%d-0" % store.clock.now_ms()


@pytest.mark.parametrize("seconds", JUMPS)
def test_an_entry_published_by_a_settlement_has_an_id_of_the_wall_clock(
    store: MovableStore, seconds: int
) -> None:
    store.deliver("s", "g")
    ((id_, _),) = store.pending("s", "g")
    store.clock.jump(seconds)
    answer = store.run(
        "XSETTLE", "s", "g", "ann", "ACK", "IDS", 1, id_, "TO", "out", "*", "FIELDS", 1, "n", "1"
    )
    assert answer[1] == [b"%d-0" % store.clock.now_ms()]


@pytest.mark.parametrize("seconds", JUMPS)
def test_time_is_the_wall_clock(store: MovableStore, seconds: int) -> None:
    store.clock.jump(seconds)
    now_ms = store.clock.now_ms()
    assert store.run("TIME") == (now_ms // 1000, now_ms % 1000 * 1000)
    assert store.client.info("server")["server_time_usec"] == now_ms * 1000


@pytest.mark.parametrize("seconds", JUMPS)
def test_an_absolute_time_refers_to_the_wall_clock_and_is_shown_unchanged(
    store: MovableStore, seconds: int
) -> None:
    store.clock.jump(seconds)
    at_ms = store.clock.now_ms() + 10_000
    # When keys get an absolute expiry
    for key in ("pexpireat", "getex", "expireat"):
        store.run("SET", key, "1")
    store.run("PEXPIREAT", "pexpireat", at_ms)
    store.run("GETEX", "getex", "PXAT", at_ms)
    store.run("EXPIREAT", "expireat", at_ms // 1000)
    store.run("SET", "pxat", "1", "PXAT", at_ms)
    store.run("SET", "exat", "1", "EXAT", at_ms // 1000)
    store.run("RESTORE", "restored", at_ms, store.run("DUMP", "exat"), "ABSTTL")
    # Then that time is shown, and the keys expire then
    for key in ("pexpireat", "getex", "pxat", "restored"):
        assert store.run("PEXPIRETIME", key) == at_ms
        assert store.run("PTTL", key) == 10_000
    assert store.run("EXPIRETIME", "expireat") == store.run("EXPIRETIME", "exat") == at_ms // 1000
    store.pass_time(10)
    assert store.run("DBSIZE") == 0


@pytest.mark.parametrize("seconds", JUMPS)
def test_an_absolute_time_in_the_past_of_the_wall_clock_deletes_the_key(
    store: MovableStore, seconds: int
) -> None:
    store.clock.jump(seconds)
    store.run("SET", "k", "1")
    assert store.run("PEXPIREAT", "k", store.clock.now_ms()) == 1
    assert store.run("EXISTS", "k") == 0


@pytest.mark.parametrize("seconds", JUMPS)
def test_expiretime_is_converted_to_the_current_wall_clock(
    store: MovableStore, seconds: int
) -> None:
    store.run("SET", "k", "1", "PXAT", store.clock.now_ms() + 10_000)
    store.clock.jump(seconds)
    assert store.run("PEXPIRETIME", "k") == store.clock.now_ms() + 10_000


@pytest.mark.parametrize("seconds", JUMPS)
def test_the_time_of_xclaim_refers_to_the_wall_clock(store: MovableStore, seconds: int) -> None:
    store.deliver("s", "g")
    ((id_, _),) = store.pending("s", "g")
    store.clock.jump(seconds)
    now_ms = store.clock.now_ms()
    for time_ms, idle_ms in ((now_ms - 5000, 5000), (now_ms, 0), (now_ms + 1, 0), (-1, 0)):
        store.run("XCLAIM", "s", "g", "ann", 0, id_, "TIME", time_ms)
        assert store.pending("s", "g") == [(id_, idle_ms)]
    store.run("XCLAIM", "s", "g", "ann", 0, id_, "IDLE", 7000)
    assert store.pending("s", "g") == [(id_, 7000)]


@pytest.mark.parametrize("seconds", JUMPS)
def test_xinfo_full_shows_times_of_the_wall_clock(store: MovableStore, seconds: int) -> None:
    store.deliver("s", "g")
    store.run("XGROUP", "CREATECONSUMER", "s", "g", "bob")
    store.clock.jump(seconds)
    then_ms = store.clock.now_ms()
    store.pass_time(3)
    (group,) = store.client.xinfo_stream("s", full=True)["groups"]
    ann, bob = group["consumers"]
    assert (ann[b"seen-time"], ann[b"active-time"]) == (then_ms, then_ms)
    assert (bob[b"seen-time"], bob[b"active-time"]) == (then_ms, -1)
    assert group["pending"][0][2] == ann[b"pending"][0][1] == then_ms


def test_an_entry_without_owner_has_no_delivery_time(store: MovableStore) -> None:
    # Given a released entry, whose delivery time is 0
    store.deliver("s", "g")
    ((id_, _),) = store.pending("s", "g")
    store.run("XNACK", "s", "g", "FAIL", "IDS", 1, id_)
    # When the wall clock jumps, then the time is still 0
    store.clock.jump(HOUR)
    (group,) = store.client.xinfo_stream("s", full=True)["groups"]
    assert group["pending"][0][2] == 0


def test_the_age_of_unread_entries_is_the_age_of_their_ids(store: MovableStore) -> None:
    store.clock.jump(HOUR)
    store.run("XADD", "s", "*", "n", "1")
    store.run("XGROUP", "CREATE", "s", "g", "0")
    store.pass_time(4)
    assert store.run("XLAG", "s")[b"g"][b"unread-age-ms"] == 4000


def test_the_slow_log_has_times_of_the_wall_clock(store: MovableStore) -> None:
    store.run("CONFIG", "SET", "slowlog-log-slower-than", 0)
    store.clock.jump(HOUR)
    store.run("SET", "k", "v")
    assert store.client.slowlog_get(1)[0]["start_time"] == store.clock.now_ms() // 1000


# --- payloads ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", JUMPS)
def test_a_dumped_stream_has_times_of_the_wall_clock(seconds: int) -> None:
    with embedded() as one, embedded() as other:
        # Given a delivered and a delayed entry, in a store whose wall clock has jumped
        one.deliver("s", "g")
        one.run("XADD", "s", "*", "n", "2")
        one.run("XREADGROUP", "GROUP", "g", "bob", "STREAMS", "s", ">")
        _, (second, _) = one.pending("s", "g")
        one.run("XSETTLE", "s", "g", "bob", "FAIL", "DELAY", 60_000, "IDS", 1, second)
        one.clock.jump(seconds)
        one.pass_time(5)
        other.clock.jump(seconds)
        other.pass_time(5)
        with headwater.connect("headwater://memory", clock=one.clock) as late:
            # When the stream is restored in a store that starts after the jump, and in one that has jumped too
            for there in (late, other.client):
                there.execute_command("RESTORE", "s", 0, one.run("DUMP", "s"))
                # Then ages and delays are unchanged
                rows = there.xpending_range("s", "g", "-", "+", 10)
                assert rows[0]["time_since_delivered"] == 5000
                assert there.execute_command("XLAG", "s")[b"g"][b"next-due-ms"] == 55_000
                ann, bob = there.xinfo_consumers("s", "g")
                assert (ann["idle"], ann["inactive"]) == (5000, 5000)
                assert bob["idle"] == 5000
                # And the new stream's dump is the same
                assert there.execute_command("DUMP", "s") == one.run("DUMP", "s")


# --- reports ----------------------------------------------------------------------------------------


def test_a_jump_is_logged_and_counted(
    store: MovableStore, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "headwater.server"):
        before = store.client.info("server")
        assert (before["clock_jumps"], before["clock_last_jump_ms"]) == (0, 0)
        # When the wall clock moves by a second, nothing is reported; by more, the jump is reported
        store.clock.jump(1)
        store.client.ping()
        assert caplog.messages == []
        store.clock.jump(-HOUR)
        store.client.ping()
        info = store.client.info("server")
        assert (info["clock_jumps"], info["clock_last_jump_ms"]) == (1, -HOUR_MS)
        (message,) = caplog.messages
        assert "the wall clock jumped by -3600.000 s" in message


def test_a_clock_that_jumps_repeatedly_does_not_fill_the_log(
    store: MovableStore, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "headwater.server"):
        for _ in range(50):
            store.clock.jump(HOUR)
            store.client.ping()
            store.clock.jump(-HOUR)
            store.client.ping()
        store.pass_time(60)
        store.clock.jump(HOUR)
        info = store.client.info("server")
    assert (info["clock_jumps"], info["clock_last_jump_ms"]) == (101, HOUR_MS)
    first, last = caplog.messages
    assert "+3600.000 s" in first
    assert "99 jumps before it were not logged" in last
