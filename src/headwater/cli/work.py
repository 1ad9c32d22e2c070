"""``headwater work``: run the consumers of an app.

headwater work shop:app --workers 4
headwater work shop.orders:app --workers 4 --grace 20s --health 127.0.0.1:9100
"""

from __future__ import annotations

from typing import Annotated

import click

from headwater.cli.arguments import duration
from headwater.cli.command import Option, Positional
from headwater.worker.observe.logs import LogFormat, LogLevel

Target = Annotated[
    str,
    Positional(metavar="MODULE:APP", help="Module and variable of the App: shop.orders:app."),
]
Workers = Annotated[
    int,
    Option(
        min=1,
        max=1024,
        metavar="N",
        help="Number of worker processes, not counting the quarantine process.",
    ),
]
Grace = Annotated[
    str | None,
    Option(
        parser=duration,
        metavar="DURATION",
        help="Time that running handlers may take after SIGTERM. [default: the app's grace=, by default 30s]",
    ),
]
Concurrency = Annotated[
    int | None,
    Option(
        min=1,
        max=100_000,
        metavar="N",
        help="Number of entries of each consumer that a process handles at the same time. "
        "[default: as each consumer declares]",
    ),
]
Reload = Annotated[
    bool,
    Option("--reload", help="Restart the workers when a source file changes, for development."),
]
Health = Annotated[
    str | None,
    Option(
        metavar="HOST:PORT",
        help="Address that serves GET /healthz (200 while every worker makes progress, otherwise "
        "503) and GET /metrics for Prometheus.",
    ),
]
Level = Annotated[LogLevel, Option("--log-level", help="Minimum level of logged messages.")]
Format = Annotated[
    LogFormat, Option("--log-format", help="Plain lines, or one JSON object per line.")
]


def work(
    app: Target,
    *,
    workers: Workers = 1,
    grace: Grace = None,
    concurrency: Concurrency = None,
    reload: Reload = False,
    health: Health = None,
    log_level: Level = LogLevel.INFO,
    log_format: Format = LogFormat.TEXT,
) -> None:
    """Run the consumers of an app until SIGTERM.

    The consumers run in worker processes; a process that dies is restarted. The quarantine process
    handles only suspected poison messages: those that were in flight at two deaths of processes. SIGINT
    has the same effect as SIGTERM. On the first signal, running handlers may finish within the grace
    time, and all other entries are handed back. On the second signal, their entries are handed back too.
    """
    from headwater.common.durations import milliseconds
    from headwater.worker.observe.logs import configure_logging
    from headwater.worker.process.embedded_store import supervise_on_its_store

    grace_ms = None if grace is None else milliseconds(grace, what="grace", least_ms=0)
    configure_logging(log_level, log_format)
    children = ["--log-level", log_level, "--log-format", log_format]
    if concurrency is not None:
        children += ["--concurrency", str(concurrency)]
    status = supervise_on_its_store(
        app,
        workers=workers,
        grace_ms=grace_ms,
        child_options=children,
        health=health,
        reload=reload,
    )
    raise click.exceptions.Exit(status)
