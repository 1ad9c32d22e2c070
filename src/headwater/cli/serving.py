"""Runs ``headwater serve``. It does not import click, so that a server starts faster."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from headwater.common.collector import collector_off

log = logging.getLogger("headwater.server")


def serve(words: Iterable[str]) -> int:
    """Serve a store until SIGTERM, SIGINT or SHUTDOWN. Return the exit status.

    ``words`` are the flags, which `headwater.config.loading.flag_pairs` parses: settings, and the configuration file
    as ``config``. Raises `ConfigError` and the errors of `headwater.server.running.run`.
    """
    from headwater.server.signals import IGNORED, REOPENING

    # The server installs handlers for these signals. Until then, the signals would end the process.
    for number in (*REOPENING, *IGNORED):
        signal.signal(number, signal.SIG_IGN)

    with collector_off():  # collections during the imports would take 5 % of the start time
        from headwater.config.loading import flag_pairs, load
        from headwater.server.log import configure_logging
        from headwater.server.running import run

    flags = flag_pairs(words)
    (file,) = dict(flags).get("config", [None])
    settings = load(flags=[flag for flag in flags if flag[0] != "config"], file=file)
    located = settings.located()
    if located != settings:  # files that are opened before the store may be in its directory
        with suppress(OSError):
            Path(settings.dir).mkdir(mode=0o700)
    configure_logging(located)
    if settings.inert:
        log.info("these settings have no effect here: %s", ", ".join(settings.inert))
    if not settings.metrics:
        return run(settings, on_ready=announce)
    from headwater.cli.server_metrics import metrics_served

    return run(settings, on_ready=announce, attend=metrics_served)


def announce(line: str) -> None:
    """Print the line that says that the server is ready. If it cannot be written to standard output, the
    failure is only logged, because the log has the line too."""
    try:
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        print(line, flush=True)
    except OSError as error:
        log.warning("the ready line cannot be written to standard output: %s", error.strerror)
        # Flushing the rest of the buffer at the process's end would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), sys.stdout.fileno())
