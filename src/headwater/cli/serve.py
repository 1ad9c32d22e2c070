"""``headwater serve``: serve a store on sockets, in the foreground.

    headwater serve --dir data --appendfsync always
    headwater serve --config headwater.conf --maxclients 500

Every setting of docs/reference/configuration.md can be given as ``--name value``. When the server is
ready, it prints its addresses as one line on standard output. SIGTERM and SIGINT stop it cleanly.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import click

from headwater.cli import serving
from headwater.cli.command import Option, made
from headwater.config.listening import ListeningConfig
from headwater.config.setting import settings_of
from headwater.config.storage import StorageConfig

_DECLARED = {
    each.name: each for group in (ListeningConfig, StorageConfig) for each in settings_of(group)
}


def setting_option(name: str, metavar: str = "") -> Any:
    """Return the command-line option of a setting, with the summary of its declaration."""
    declared = _DECLARED[name]
    summary = declared.summary.replace("`", "")
    default = f" [default: {declared.spelled_default}]" if declared.spelled_default else ""
    return Option(metavar=metavar or "|".join(declared.kind.choices), help=f"{summary}{default}")


class FlagsCommand(click.Command):
    """A command that leaves all words to `headwater.config.loading.flag_pairs`, which follows redis-server's
    rules. The options are declared only for ``--help``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Return the words unparsed, unless they ask for help."""
        super().parse_args(ctx, ["--help"] if {"-h", "--help"} & {*args} else [])
        ctx.args = args
        return args


def serve(
    *,
    port: Annotated[str | None, setting_option("port", "PORT")] = None,
    bind: Annotated[str | None, setting_option("bind", "'ADDRESS …'")] = None,
    unixsocket: Annotated[str | None, setting_option("unixsocket", "PATH")] = None,
    dir: Annotated[str | None, setting_option("dir", "DATA")] = None,
    appendonly: Annotated[str | None, setting_option("appendonly")] = None,
    appendfsync: Annotated[str | None, setting_option("appendfsync")] = None,
    config: Annotated[
        Path | None, Option(metavar="FILE", help="File of settings, in redis.conf's syntax.")
    ] = None,
) -> None:
    """Serve a store until SIGTERM, SIGINT or SHUTDOWN.

    Every setting of redis.conf that Headwater supports can be given as --name value. Flags override
    the environment (HEADWATER_PORT), and the environment overrides the file.
    """
    del port, bind, unixsocket, dir, appendonly, appendfsync, config  # declared for the help
    context = click.get_current_context()
    raise click.exceptions.Exit(serving.serve(context.args))


app = made(serve, "serve", FlagsCommand)
