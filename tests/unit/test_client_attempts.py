"""What a connection has sent, whether it is repeated, and what its errors say."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import ConstantBackoff
from redis.exceptions import AuthenticationError, BusyLoadingError, ResponseError, WatchError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.retry import Retry

from headwater.client.aio.guarded import AsyncGuardedRetry
from headwater.client.attempts import Sent, may_have_run
from headwater.client.sync.guarded import GuardedRetry


def commands(*texts: str) -> list[list[str]]:
    return [text.split() for text in texts]


def test_an_attempt_that_sent_nothing_may_be_repeated() -> None:
    assert Sent().may_repeat


def test_the_first_command_that_may_not_run_twice_is_named() -> None:
    sent = Sent()
    sent.note(commands("XLEN s", "XADD s * a 1", "SET k v"))
    assert (sent.may_repeat, sent.unrepeatable) == (False, "XADD")


def test_a_transaction_is_as_repeatable_as_its_commands() -> None:
    reads, writes, alone = Sent(), Sent(), Sent()
    reads.note(commands("MULTI", "XLEN s", "XACK s g 1-1", "EXEC"))
    writes.note(commands("MULTI", "XLEN s", "XADD s * a 1", "EXEC"))
    alone.note(commands("EXEC"))
    assert (reads.may_repeat, writes.unrepeatable, alone.unrepeatable) == (True, "XADD", "EXEC")


def test_unknown_commands_may_not_run_twice() -> None:
    sent = Sent()
    sent.note(None)
    assert not sent.may_repeat
    assert not sent.only_one


def test_a_nested_attempt_is_judged_separately() -> None:
    # Given an attempt that has sent nothing yet, and a nested one that connects
    sent = Sent()
    outer = sent.begin()
    inner = sent.begin()
    sent.note(commands("HELLO 3", "NOSUCH"))
    within = sent.may_repeat
    # When the nested one ends, then the outer one still has sent nothing
    sent.end(inner)
    assert (within, sent.may_repeat) == (False, True)
    sent.note(commands("XADD s * a 1"))
    assert sent.only_one
    sent.end(outer)


@pytest.mark.parametrize(
    ("acquiring", "releasing"),
    [("WATCH k", "UNWATCH"), ("WATCH k", "EXEC"), ("MULTI", "DISCARD"), ("MULTI", "RESET")],
)
def test_a_connection_with_state_cannot_be_replaced(acquiring: str, releasing: str) -> None:
    sent = Sent()
    for text, replaceable in ((acquiring, False), (releasing, True)):
        outer = sent.begin()
        sent.note(commands(text))
        sent.end(outer)
        outer = sent.begin()
        assert sent.may_repeat is replaceable
        sent.end(outer)


def test_the_state_of_a_connection_ends_with_it() -> None:
    sent = Sent()
    sent.note(commands("WATCH k"))
    sent.disconnected()
    sent.begin()
    assert sent.may_repeat


def test_waits_add_up() -> None:
    sent = Sent()
    sent.note(commands("XREAD BLOCK 500 STREAMS s $", "XLEN s", "XREAD BLOCK 250 STREAMS s $"))
    assert sent.wait == 0.75


# --- attempts -------------------------------------------------------------------------------------


class Attempts:
    """A call that raises each error once, after sending its commands, and then returns."""

    def __init__(self, *failures: tuple[str, Exception]) -> None:
        self.sent = Sent()
        self.failures = list(failures)
        self.failed: list[tuple[Any, ...]] = []

    def do(self) -> str:
        if not self.failures:
            return "done"
        text, error = self.failures.pop(0)
        self.sent.note(commands(text) if text else [])
        raise error

    def fail(self, *arguments: Any) -> None:
        self.failed.append(arguments)

    def run(self, **options: Any) -> Any:
        """Run the attempts in this thread."""
        policy = GuardedRetry(Retry(ConstantBackoff(0.25), 3), self.sent)
        return policy.call_with_retry(self.do, **{"fail": self.fail, **options})


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The recorded seconds between attempts; the test does not wait."""
    found: list[float] = []
    monkeypatch.setattr("headwater.client.sync.guarded.sleep", found.append)
    return found


LOST = RedisConnectionError("lost")


def test_a_read_is_repeated_after_a_pause(pauses: list[float]) -> None:
    attempts = Attempts(("XLEN s", LOST), ("XLEN s", LOST))
    assert attempts.run(with_failure_count=True) == "done"
    assert (attempts.failed, pauses) == ([(LOST, 1), (LOST, 2)], [0.25, 0.25])


def test_an_attempt_that_sent_nothing_is_repeated() -> None:
    attempts = Attempts(("", LOST))
    assert attempts.run() == "done"
    assert attempts.failed == [(LOST,)]


def test_attempts_end_with_the_last_error(pauses: list[float]) -> None:
    attempts = Attempts(*[("XLEN s", RedisConnectionError(str(n))) for n in range(9)])
    with pytest.raises(RedisConnectionError, match=r"^3$") as caught:
        attempts.run()
    assert not may_have_run(caught.value)
    assert len(pauses) == 3


def test_a_write_is_not_sent_again_and_its_error_says_so() -> None:
    attempts = Attempts(("XADD s * a 1", RedisConnectionError("Connection closed.")))
    with pytest.raises(RedisConnectionError) as caught:
        attempts.run()
    assert str(caught.value) == (
        "Connection closed. XADD had been sent and may have run, so it was not sent again"
    )
    assert may_have_run(caught.value)
    assert len(attempts.failed) == 1


def test_refused_credentials_are_not_repeated() -> None:
    error = AuthenticationError("WRONGPASS")
    attempts = Attempts(("", error))
    with pytest.raises(AuthenticationError, match=r"^WRONGPASS$") as caught:
        attempts.run()
    assert not may_have_run(caught.value)


def test_a_write_that_a_loading_server_refused_is_sent_again() -> None:
    assert Attempts(("XADD s * a 1", BusyLoadingError("LOADING"))).run() == "done"


def test_errors_that_the_policy_does_not_name_are_raised_at_once() -> None:
    attempts = Attempts(("XLEN s", ResponseError("ERR")))
    with pytest.raises(ResponseError):
        attempts.run()
    assert attempts.failed == []


def test_the_caller_may_refuse_an_error() -> None:
    attempts = Attempts(("XLEN s", LOST))
    with pytest.raises(RedisConnectionError):
        attempts.run(is_retryable=lambda _error: False)
    assert attempts.failed == []


def _watch_error(_error: Exception) -> None:
    raise WatchError("Watched variable changed")


def test_an_exec_that_may_have_run_is_not_reported_as_a_failed_watch() -> None:
    attempts = Attempts(("EXEC", RedisConnectionError("lost")))
    with pytest.raises(RedisConnectionError, match="EXEC had been sent"):
        attempts.run(fail=_watch_error)


def test_a_failed_watch_that_ran_nothing_is_reported() -> None:
    attempts = Attempts(("XLEN s", LOST))
    with pytest.raises(WatchError):
        attempts.run(fail=_watch_error)


def test_a_failed_attempt_does_not_change_the_outer_one() -> None:
    attempts = Attempts(("XADD s * a 1", RedisConnectionError("lost")))
    with pytest.raises(RedisConnectionError):
        attempts.run()
    assert attempts.sent.may_repeat


def test_both_drivers_repeat_attempts() -> None:
    # Given calls that fail once
    sync, aio = Attempts(("XLEN s", LOST)), Attempts(("XLEN s", LOST))

    async def do() -> str:
        return aio.do()

    async def fail(error: Exception) -> None:
        aio.fail(error)

    # When a sync and an asyncio policy run them
    for_threads = GuardedRetry(Retry(ConstantBackoff(0.001), 3), sync.sent)
    for_loops = AsyncGuardedRetry(AsyncRetry(ConstantBackoff(0.001), 3), aio.sent)
    found = (
        for_threads.call_with_retry(sync.do, sync.fail),
        asyncio.run(for_loops.call_with_retry(do, fail)),
    )

    # Then both repeat the call
    assert found == ("done", "done")
    assert sync.failed == aio.failed == [(LOST,)]
