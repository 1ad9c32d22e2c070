"""``headwater``: finds the subcommand and imports only its module.

Rule 1. ``headwater --help`` imports neither redis nor rich nor pyspark: this module has a table of the
        subcommands and their summaries.
Rule 2. An error that Headwater reports is one line on standard error and exit status 1, never a
        traceback. A wrong command line is exit status 2, Ctrl-C is 130.

The module of a subcommand has a function of the same name with typer's annotations. If it has
subcommands itself, it has a `typer.Typer` named ``app``.
"""

from __future__ import annotations

import sys
from importlib import import_module
from io import TextIOWrapper
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup
from typer.main import get_command as typer_command

from headwater.cli.examples import with_example
from headwater.errors import HeadwaterError
from headwater.version import __version__


class Word(NamedTuple):
    """Where a subcommand is defined, and its line in ``headwater --help``."""

    module: str
    attribute: str
    summary: str


WORDS = {
    "serve": Word("headwater.cli.serve", "app", "Serve a store until SIGTERM, SIGINT or SHUTDOWN."),
    "work": Word("headwater.cli.work", "work", "Run the consumers of an app until SIGTERM."),
    "explain": Word(
        "headwater.cli.explain",
        "explain",
        "Say why consumer groups make no progress, and what ends it.",
    ),
    "doctor": Word("headwater.cli.doctor", "doctor", "Examine whether a store is fit for workers."),
    "streams": Word("headwater.cli.streams", "streams_app", "List and trim streams."),
    "groups": Word(
        "headwater.cli.streams", "groups_app", "List consumer groups, set their positions."
    ),
    "lag": Word("headwater.cli.streams", "lag", "Show how far the groups of a stream are behind."),
    "tail": Word("headwater.cli.tail", "tail", "Print entries of a stream."),
    "add": Word("headwater.cli.tail", "add", "Add an entry to a stream."),
    "dead": Word("headwater.cli.dead", "app", "List, show, replay and drop dead letters."),
    "pending": Word(
        "headwater.cli.pending",
        "app",
        "List pending entries; hand them back, claim, acknowledge or bury them.",
    ),
    "retries": Word(
        "headwater.cli.retries", "app", "List entries that wait for their retry, run them now."
    ),
    "consumers": Word(
        "headwater.cli.consumers", "app", "List the consumers of a group, remove unused ones."
    ),
    "history": Word(
        "headwater.cli.history", "history", "Print what happened to an entry (Headwater only)."
    ),
    "backup": Word("headwater.cli.backup", "backup", "Copy a store, also while it is used."),
    "restore": Word(
        "headwater.cli.backup", "restore", "Make a data directory as it was at a moment."
    ),
    "repair": Word("headwater.cli.repair", "repair", "Make a whole store from a damaged one."),
    "check": Word("headwater.cli.check", "check", "Check the files of a store."),
    "store": Word("headwater.cli.journal", "store", "Show what uses the disk in a data directory."),
    "journal": Word("headwater.cli.journal", "app", "List and verify the journal of a store."),
    "exporter": Word(
        "headwater.cli.exporter", "exporter", "Serve metrics of a store for Prometheus."
    ),
    "pipeline": Word("headwater.cli.pipeline", "app", "Turn streams into tables with Spark."),
    "spark": Word(
        "headwater.cli.spark",
        "app",
        "Package Headwater for a cluster's executors; set up Spark's own programs.",
    ),
    "demo": Word(
        "headwater.cli.demo", "demo", "Run server, workers and Spark on 336,776 real flights."
    ),
    "info": Word("headwater.cli.info", "info", "Print what is installed and what is compiled."),
}

SETTINGS: dict[str, Any] = {
    "rich_markup_mode": None,  # help is plain text: importing rich takes longer than the command
    "add_completion": False,
    "pretty_exceptions_enable": False,
}
"""Arguments of every `typer.Typer` of the command line."""


class LazyGroup(TyperGroup):
    """The subcommands of `WORDS`, each imported when it is run or its help is printed."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = dict.fromkeys(WORDS)  # type: ignore[assignment]  # used for suggestions only

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return load(cmd_name) if cmd_name in WORDS else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, word.summary) for name, word in WORDS.items()])


def load(name: str) -> Any:
    """Import one of `WORDS` and return its command."""
    word = WORDS[name]
    defined = getattr(import_module(word.module), word.attribute)
    if isinstance(defined, typer.Typer):
        return with_example(name, typer_command(defined))
    single = typer.Typer(**SETTINGS)
    single.command(name)(defined)
    return with_example(name, typer_command(single))


app = typer.Typer(cls=LazyGroup, no_args_is_help=True, **SETTINGS | {"add_completion": True})


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"headwater {__version__}")
        raise typer.Exit


@app.callback()
def headwater(
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """A stream store compatible with Redis Streams, a worker framework that loses no message, and
    Spark pipelines that turn streams into tables."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line, and exit the process with its status."""
    if isinstance(sys.stdout, TextIOWrapper):
        # Names are printed as the bytes that they are.
        sys.stdout.reconfigure(errors="surrogateescape")
    try:
        typer_command(app).main(args=arguments, prog_name="headwater")
    except HeadwaterError as problem:
        print(f"headwater: {problem}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
