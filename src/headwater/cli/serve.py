"""``headwater serve``: serve a store on sockets, in the foreground.

    headwater serve --port 0 --dir data --appendfsync always
    headwater serve --config headwater.conf --maxclients 500

Every setting of docs/reference/configuration.md can be given as ``--name value``. When the server is
ready, it prints its addresses as one line on standard output. SIGTERM and SIGINT stop it cleanly.
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
    """Return the command-line option of a setting, with the summary of its declaration."""
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

    Every setting of redis.conf that Headwater supports can be given as --name value. Flags override
    the environment (HEADWATER_PORT), and the environment overrides the file.
    """
    from headwater.server.signals import IGNORED, REOPENING

    # The server installs their handlers; until then these signals would end the process.
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
    """Print the ready line. An unwritable standard output does not stop the store: the log has the line
    too."""
    try:
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        print(line, flush=True)
    except OSError as error:
        log.warning("the ready line cannot be written to standard output: %s", error.strerror)
        # Flushing the rest of the buffer at the process's end would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), sys.stdout.fileno())
