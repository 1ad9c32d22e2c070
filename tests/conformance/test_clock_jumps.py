"""The wall clock jumps by an hour: ages, delays and expiries go on by elapsed time; new ids, TIME and
absolute times follow the wall clock.

Each promise is tried on a store in this process and on a server, by the same client.
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


class Stand:
    """A store whose clock a test moves: ``run`` sends a command, ``pass_time`` lets time pass."""

    def __init__(self, clock: ManualClock, client: Any, pass_time: Callable[[float], None]) -> None:
        self.clock = clock
        self.client = client
        self.pass_time = pass_time

    def run(self, *words: object) -> Any:
        return self.client.execute_command(*words)

    def pending(self, key: str, group: str) -> list[tuple[bytes, int]]:
        """Pending ids and how long each has been idle, ms."""
        rows = self.client.xpending_range(key, group, "-", "+", 100)
        return [(row["message_id"], row["time_since_delivered"]) for row in rows]

    def take(self, key: str, group: str) -> None:
        """One entry of a new stream is delivered to ann."""
        self.run("XADD", key, "*", "n", "1")
        self.run("XGROUP", "CREATE", key, group, "0")
        self.run("XREADGROUP", "GROUP", group, "ann", "STREAMS", key, ">")


@contextmanager
def embedded() -> Iterator[Stand]:
    clock = ManualClock()
    with headwater.connect("headwater://memory", clock=clock) as client:
        yield Stand(clock, client, clock.advance)


@contextmanager
def served() -> Iterator[Stand]:
    clock = ManualClock()
    with (
        server_thread(Config(port=0, appendonly=False), clock=clock) as server,
        redis.Redis.from_url(server.url) as client,
    ):
        yield Stand(clock, client, server.advance)


@pytest.fixture(params=[embedded, served], ids=["embedded", "server"])
def stand(request: pytest.FixtureRequest) -> Iterator[Stand]:
    with request.param() as made:
        yield made


# --- ages -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", JUMPS)
def test_xautoclaim_claims_by_elapsed_time(stand: Stand, seconds: int) -> None:
    # Given an entry that was delivered just now
    stand.take("s", "g")
    # When the wall clock jumps, then it is as young as before
    stand.clock.jump(seconds)
    assert stand.run("XAUTOCLAIM", "s", "g", "bob", 60_000, "0")[1] == []
    # When a minute has passed, then it is claimed
    stand.pass_time(60)
    assert len(stand.run("XAUTOCLAIM", "s", "g", "bob", 60_000, "0")[1]) == 1


@pytest.mark.parametrize("seconds", JUMPS)
def test_a_renewed_lease_lasts_as_long_as_before(stand: Stand, seconds: int) -> None:
    stand.take("s", "g")
    ((name, _),) = stand.pending("s", "g")
    stand.pass_time(50)
    stand.run("XRENEW", "s", "g", "ann", "IDS", 1, name)
    stand.clock.jump(seconds)
    stand.pass_time(50)
    assert stand.pending("s", "g") == [(name, 50_000)]
    assert stand.run("XCLAIM", "s", "g", "bob", 60_000, name) == []


@pytest.mark.parametrize("seconds", JUMPS)
def test_a_delay_ends_when_its_time_has_passed(stand: Stand, seconds: int) -> None:
    # Given an entry with a delay of 2 s
    stand.take("s", "g")
    ((name, _),) = stand.pending("s", "g")
    stand.run("XSETTLE", "s", "g", "ann", "FAIL", "DELAY", 2000, "IDS", 1, name)
    # When the wall clock jumps, then it ends neither at once nor an hour late
    stand.clock.jump(seconds)
    stand.pass_time(1.9)
    assert stand.run("XAUTOCLAIM", "s", "g", "bob", 0, "0")[1] == []
    stand.pass_time(0.1)
    assert len(stand.run("XAUTOCLAIM", "s", "g", "bob", 0, "0")[1]) == 1


@pytest.mark.parametrize("seconds", JUMPS)
def test_ex_and_px_end_when_their_time_has_passed(stand: Stand, seconds: int) -> None:
    stand.run("SET", "ex", "1", "EX", 10)
    stand.run("SET", "px", "1", "PX", 10_000)
    stand.run("SET", "later", "1")
    stand.run("PEXPIRE", "later", 10_000)
    stand.clock.jump(seconds)
    assert [stand.run("PTTL", key) for key in ("ex", "px", "later")] == [10_000] * 3
    stand.pass_time(9.999)
    assert stand.run("EXISTS", "ex", "px", "later") == 3
    stand.pass_time(0.001)
    assert stand.run("EXISTS", "ex", "px", "later") == 0


@pytest.mark.parametrize("seconds", JUMPS)
def test_seen_and_active_times_are_ages_by_elapsed_time(stand: Stand, seconds: int) -> None:
    stand.take("s", "g")
    stand.clock.jump(seconds)
    stand.pass_time(5)
    (ann,) = stand.client.xinfo_consumers("s", "g")
    assert (ann["idle"], ann["inactive"]) == (5000, 5000)


@pytest.mark.parametrize("seconds", JUMPS)
def test_an_idmp_window_is_as_long_as_it_says(stand: Stand, seconds: int) -> None:
    # Given a window of 100 s, which begins after the jump for one entry and before it for the other
    first = stand.run("XADD", "before", "IDMP", "p", "i", "*", "n", "1")
    stand.clock.jump(seconds)
    second = stand.run("XADD", "after", "IDMP", "p", "i", "*", "n", "1")
    # When less than that has passed, then what is sent again is known
    stand.pass_time(98)
    assert stand.run("XADD", "before", "IDMP", "p", "i", "*", "n", "1") == first
    assert stand.run("XADD", "after", "IDMP", "p", "i", "*", "n", "1") == second
    # When it has passed, then it is forgotten
    stand.pass_time(4)
    assert stand.run("XADD", "before", "IDMP", "p", "i", "*", "n", "1") != first
    assert stand.run("XADD", "after", "IDMP", "p", "i", "*", "n", "1") != second


@pytest.mark.parametrize("seconds", JUMPS)
def test_object_idletime_is_elapsed_time(stand: Stand, seconds: int) -> None:
    stand.run("SET", "k", "v")
    stand.clock.jump(seconds)
    stand.pass_time(7)
    assert stand.run("OBJECT", "IDLETIME", "k") == 7


@pytest.mark.parametrize("seconds", JUMPS)
def test_uptime_is_elapsed_time(stand: Stand, seconds: int) -> None:
    stand.clock.jump(seconds)
    stand.pass_time(7)
    assert stand.client.info("server")["uptime_in_seconds"] == 7


@pytest.mark.parametrize("seconds", JUMPS)
def test_a_refusal_is_as_old_as_it_is(stand: Stand, seconds: int) -> None:
    # Given a command that was refused
    stand.run("ACL", "SETUSER", "eve", "on", ">secret", "allkeys", "+@all", "-get")
    stand.run("AUTH", "eve", "secret")
    with pytest.raises(redis.exceptions.NoPermissionError):
        stand.run("GET", "k")
    # When the wall clock jumps and it is refused again within a minute
    stand.clock.jump(seconds)
    stand.pass_time(30)
    with pytest.raises(redis.exceptions.NoPermissionError):
        stand.run("GET", "k")
    stand.pass_time(5)
    # Then both are one entry, and its times are those of the wall clock
    (entry,) = stand.client.acl_log()
    assert (entry["count"], entry["age-seconds"]) == (2, 5.0)
    assert entry["timestamp-last-updated"] == stand.clock.now_ms() - 5000
    assert entry["timestamp-created"] == stand.clock.now_ms() - 35_000


# --- what follows the wall clock --------------------------------------------------------------------


def test_new_ids_follow_the_wall_clock_forward_and_rise_after_it_went_back(stand: Stand) -> None:
    first = stand.run("XADD", "s", "*", "n", "1")
    stand.clock.jump(HOUR)
    second = stand.run("XADD", "s", "*", "n", "2")
    assert second == b"%d-0" % stand.clock.now_ms()
    stand.clock.jump(-2 * HOUR)
    third = stand.run("XADD", "s", "*", "n", "3")
    assert third == second.replace(b"-0", b"-1") != first
    # A stream that has no later id begins where the wall clock is
    assert stand.run("XADD", "new", "*", "n", "1") == b"%d-0" % stand.clock.now_ms()


@pytest.mark.parametrize("seconds", JUMPS)
def test_an_entry_that_is_published_by_a_settlement_has_an_id_of_the_wall_clock(
    stand: Stand, seconds: int
) -> None:
    stand.take("s", "g")
    ((name, _),) = stand.pending("s", "g")
    stand.clock.jump(seconds)
    answer = stand.run(
        "XSETTLE", "s", "g", "ann", "ACK", "IDS", 1, name, "TO", "out", "*", "FIELDS", 1, "n", "1"
    )
    assert answer[1] == [b"%d-0" % stand.clock.now_ms()]


@pytest.mark.parametrize("seconds", JUMPS)
def test_time_is_the_wall_clock(stand: Stand, seconds: int) -> None:
    stand.clock.jump(seconds)
    now_ms = stand.clock.now_ms()
    assert stand.run("TIME") == (now_ms // 1000, now_ms % 1000 * 1000)
    assert stand.client.info("server")["server_time_usec"] == now_ms * 1000


@pytest.mark.parametrize("seconds", JUMPS)
def test_an_absolute_time_is_meant_by_the_wall_clock_and_shown_as_it_was_given(
    stand: Stand, seconds: int
) -> None:
    stand.clock.jump(seconds)
    at_ms = stand.clock.now_ms() + 10_000
    # When keys are told to end at a time
    for key in ("pexpireat", "getex", "expireat"):
        stand.run("SET", key, "1")
    stand.run("PEXPIREAT", "pexpireat", at_ms)
    stand.run("GETEX", "getex", "PXAT", at_ms)
    stand.run("EXPIREAT", "expireat", at_ms // 1000)
    stand.run("SET", "pxat", "1", "PXAT", at_ms)
    stand.run("SET", "exat", "1", "EXAT", at_ms // 1000)
    stand.run("RESTORE", "restored", at_ms, stand.run("DUMP", "exat"), "ABSTTL")
    # Then that time is shown, and they end then
    for key in ("pexpireat", "getex", "pxat", "restored"):
        assert stand.run("PEXPIRETIME", key) == at_ms
        assert stand.run("PTTL", key) == 10_000
    assert stand.run("EXPIRETIME", "expireat") == stand.run("EXPIRETIME", "exat") == at_ms // 1000
    stand.pass_time(10)
    assert stand.run("DBSIZE") == 0


@pytest.mark.parametrize("seconds", JUMPS)
def test_a_time_that_has_passed_by_the_wall_clock_has_passed(stand: Stand, seconds: int) -> None:
    stand.clock.jump(seconds)
    stand.run("SET", "k", "1")
    assert stand.run("PEXPIREAT", "k", stand.clock.now_ms()) == 1
    assert stand.run("EXISTS", "k") == 0


@pytest.mark.parametrize("seconds", JUMPS)
def test_expiretime_tells_when_the_key_will_end_by_the_wall_clock_of_now(
    stand: Stand, seconds: int
) -> None:
    stand.run("SET", "k", "1", "PXAT", stand.clock.now_ms() + 10_000)
    stand.clock.jump(seconds)
    assert stand.run("PEXPIRETIME", "k") == stand.clock.now_ms() + 10_000


@pytest.mark.parametrize("seconds", JUMPS)
def test_xclaim_takes_a_time_of_the_wall_clock(stand: Stand, seconds: int) -> None:
    stand.take("s", "g")
    ((name, _),) = stand.pending("s", "g")
    stand.clock.jump(seconds)
    now_ms = stand.clock.now_ms()
    for time, idle in ((now_ms - 5000, 5000), (now_ms, 0), (now_ms + 1, 0), (-1, 0)):
        stand.run("XCLAIM", "s", "g", "ann", 0, name, "TIME", time)
        assert stand.pending("s", "g") == [(name, idle)]
    stand.run("XCLAIM", "s", "g", "ann", 0, name, "IDLE", 7000)
    assert stand.pending("s", "g") == [(name, 7000)]


@pytest.mark.parametrize("seconds", JUMPS)
def test_xinfo_full_shows_times_of_the_wall_clock(stand: Stand, seconds: int) -> None:
    stand.take("s", "g")
    stand.run("XGROUP", "CREATECONSUMER", "s", "g", "bob")
    stand.clock.jump(seconds)
    then_ms = stand.clock.now_ms()
    stand.pass_time(3)
    (group,) = stand.client.xinfo_stream("s", full=True)["groups"]
    ann, bob = group["consumers"]
    assert (ann[b"seen-time"], ann[b"active-time"]) == (then_ms, then_ms)
    assert (bob[b"seen-time"], bob[b"active-time"]) == (then_ms, -1)
    assert group["pending"][0][2] == ann[b"pending"][0][1] == then_ms


def test_what_nobody_owns_has_no_time(stand: Stand) -> None:
    # Given a released entry, whose time is 0
    stand.take("s", "g")
    ((name, _),) = stand.pending("s", "g")
    stand.run("XNACK", "s", "g", "FAIL", "IDS", 1, name)
    # When the wall clock jumps, then it is 0 still
    stand.clock.jump(HOUR)
    (group,) = stand.client.xinfo_stream("s", full=True)["groups"]
    assert group["pending"][0][2] == 0


def test_the_age_of_what_is_unread_is_told_by_its_id(stand: Stand) -> None:
    stand.clock.jump(HOUR)
    stand.run("XADD", "s", "*", "n", "1")
    stand.run("XGROUP", "CREATE", "s", "g", "0")
    stand.pass_time(4)
    assert stand.run("XLAG", "s")[b"g"][b"unread-age-ms"] == 4000


def test_the_slow_log_has_times_of_the_wall_clock(stand: Stand) -> None:
    stand.run("CONFIG", "SET", "slowlog-log-slower-than", 0)
    stand.clock.jump(HOUR)
    stand.run("SET", "k", "v")
    assert stand.client.slowlog_get(1)[0]["start_time"] == stand.clock.now_ms() // 1000


# --- payloads ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", JUMPS)
def test_a_dumped_stream_has_times_of_the_wall_clock(seconds: int) -> None:
    with embedded() as one, embedded() as other:
        # Given a store whose wall clock jumped, and one that began with the clock that is right now
        one.take("s", "g")
        one.run("XADD", "s", "*", "n", "2")
        one.run("XREADGROUP", "GROUP", "g", "bob", "STREAMS", "s", ">")
        _, (second, _) = one.pending("s", "g")
        one.run("XSETTLE", "s", "g", "bob", "FAIL", "DELAY", 60_000, "IDS", 1, second)
        one.clock.jump(seconds)
        one.pass_time(5)
        other.clock.jump(seconds)
        other.pass_time(5)
        with headwater.connect("headwater://memory", clock=one.clock) as late:
            # When it moves there, and to the store that jumped with it
            for there in (late, other.client):
                there.execute_command("RESTORE", "s", 0, one.run("DUMP", "s"))
                # Then ages and delays are as they were
                rows = there.xpending_range("s", "g", "-", "+", 10)
                assert rows[0]["time_since_delivered"] == 5000
                assert there.execute_command("XLAG", "s")[b"g"][b"next-due-ms"] == 55_000
                ann, bob = there.xinfo_consumers("s", "g")
                assert (ann["idle"], ann["inactive"]) == (5000, 5000)
                assert bob["idle"] == 5000
                # And it is dumped as it was
                assert there.execute_command("DUMP", "s") == one.run("DUMP", "s")


# --- who is told ------------------------------------------------------------------------------------


def test_a_jump_is_logged_and_counted(stand: Stand, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "headwater.server"):
        before = stand.client.info("server")
        assert (before["clock_jumps"], before["clock_last_jump_ms"]) == (0, 0)
        # When the wall clock moves by a second, nobody is told; by more, everybody is
        stand.clock.jump(1)
        stand.client.ping()
        assert caplog.messages == []
        stand.clock.jump(-HOUR)
        stand.client.ping()
        told = stand.client.info("server")
        assert (told["clock_jumps"], told["clock_last_jump_ms"]) == (1, -HOUR_MS)
        (message,) = caplog.messages
        assert "the wall clock jumped by -3600.000 s" in message


def test_a_clock_that_jumps_all_the_time_does_not_fill_the_log(
    stand: Stand, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "headwater.server"):
        for _ in range(50):
            stand.clock.jump(HOUR)
            stand.client.ping()
            stand.clock.jump(-HOUR)
            stand.client.ping()
        stand.pass_time(60)
        stand.clock.jump(HOUR)
        told = stand.client.info("server")
    assert (told["clock_jumps"], told["clock_last_jump_ms"]) == (101, HOUR_MS)
    first, last = caplog.messages
    assert "+3600.000 s" in first
    assert "99 jumps before it were not logged" in last
