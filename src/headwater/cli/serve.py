"""``headwater serve``: the store behind sockets, in the foreground.

    headwater serve --port 0 --dir data --appendfsync always
    headwater serve --config headwater.conf --maxclients 500

Every setting of docs/reference/configuration.md can be given as ``--name value``. One line on
standard output says when and where clients are answered; SIGTERM and SIGINT end the server cleanly.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from headwater.cli.main import SETTINGS
from headwater.config.listening import ListeningConfig
from headwater.config.setting import settings_of
from headwater.config.storage import StorageConfig

log = logging.getLogger("headwater.server")

app = typer.Typer(**SETTINGS)

_DECLARED = {
    each.name: each for group in (ListeningConfig, StorageConfig) for each in settings_of(group)
}


def setting_option(name: str, metavar: str = "") -> Any:
    """The option that gives a setting, as its declaration describes it."""
    declared = _DECLARED[name]
    summary = declared.summary.replace("`", "")
    default = f" [default: {declared.spelled_default}]" if declared.spelled_default else ""
    return typer.Option(
        metavar=metavar or "|".join(declared.kind.choices), help=f"{summary}{default}"
    )


@app.command("serve", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def serve(
    context: typer.Context,
    *,
    port: Annotated[str | None, setting_option("port", "PORT")] = None,
    bind: Annotated[str | None, setting_option("bind", "'ADDRESS …'")] = None,
    unixsocket: Annotated[str | None, setting_option("unixsocket", "PATH")] = None,
    dir: Annotated[str | None, setting_option("dir", "DATA")] = None,
    appendonly: Annotated[str | None, setting_option("appendonly")] = None,
    appendfsync: Annotated[str | None, setting_option("appendfsync")] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Settings in redis.conf's syntax.")
    ] = None,
) -> None:
    """Serve a store until SIGTERM, SIGINT or SHUTDOWN.

    Every setting of redis.conf that Headwater has can be given as --name value; flags are stronger
    than the environment (HEADWATER_PORT), and that is stronger than the file.
    """
    from headwater.server.signals import IGNORED, REOPENING

    # Their handlers come with the server; until then they would end this process.
    for number in (*REOPENING, *IGNORED):
        signal.signal(number, signal.SIG_IGN)

    from headwater.config.loading import flag_pairs, load
    from headwater.server.log import configure_logging
    from headwater.server.running import run

    named = {
        "port": port,
        "bind": bind,
        "unixsocket": unixsocket,
        "dir": dir,
        "appendonly": appendonly,
        "appendfsync": appendfsync,
    }
    flags = [(name, value) for name, value in named.items() if value is not None]
    settings = load(flags=[*flags, *flag_pairs(context.args)], file=config)
    configure_logging(settings)
    raise typer.Exit(run(settings, on_ready=announce))


def announce(line: str) -> None:
    """Print the ready line. That nobody can read it ends no store: the log has it as well."""
    try:
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        print(line, flush=True)
    except OSError as error:
        log.warning("the ready line cannot be written to standard output: %s", error.strerror)
        # What is still in its buffer would be an error again when the process ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), sys.stdout.fileno())
