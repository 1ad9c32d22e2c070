"""``headwater work`` of an app that configures logging itself."""

from __future__ import annotations

import logging
import re
import signal

import pytest

from headwater.worker.observe import logs
from tests.worker.apps import Store, eventually, one_store
from tests.worker.processes import supervised

pytestmark = pytest.mark.slow

TARGET = "tests.worker.logging_app:app"


@pytest.mark.parametrize("at", ["import", "start"])
@one_store
async def test_an_app_that_configures_logging_does_not_silence_the_worker(
    store: Store, at: str
) -> None:
    # Given an app that configures logging with the defaults, which disable existing loggers
    with supervised(store.url, target=TARGET, LOGGING_AT=at) as parent:
        # When a message fails, and the workers are stopped
        await store.look.xadd("orders", {"id": 1})
        await eventually(store.dead)
        parent.signal(signal.SIGTERM)
        assert parent.wait() == 0

        # Then the app's handler has got the failure, and the lines of the start and stop
        log = parent.log()
        assert re.search(r"OWN WARNING headwater\.worker .*ValueError: as requested", log)
        assert "OWN INFO headwater.worker bill reads orders as" in log
        assert "INFO" in log.partition("stopping 1 worker")[0].splitlines()[-1]


@one_store
async def test_the_level_that_an_app_sets_for_headwater_stays_in_force(store: Store) -> None:
    with supervised(store.url, target=TARGET, LOGGING_LEVEL="WARNING") as parent:
        await store.look.xadd("orders", {"id": 1})
        await eventually(store.dead)
        parent.signal(signal.SIGTERM)
        assert parent.wait() == 0
        log = parent.log()
    assert "OWN WARNING headwater.worker" in log
    assert "reads orders" not in log


@pytest.mark.parametrize("configured", [False, True])
def test_only_the_loggers_of_headwater_are_enabled_again(
    monkeypatch: pytest.MonkeyPatch, configured: bool
) -> None:
    # Given disabled loggers
    own, other = logging.getLogger("headwater.test"), logging.getLogger("headwaters.test")
    own.disabled = other.disabled = True
    # And a process of which `headwater work` has configured the log, or not
    before = (logs.LogLevel.INFO, logs.LogFormat.TEXT) if configured else None
    monkeypatch.setattr(logs, "_configured", before)

    # When they are enabled again, then only Headwater's are, and only in a process of `headwater work`
    logs.enable_loggers()
    assert own.disabled is not configured
    assert other.disabled
