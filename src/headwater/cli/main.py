"""``headwater``: finds the subcommand and imports only its module.

Rule 1. ``headwater --help`` imports neither redis nor rich nor pyspark: this module has a table of the
        subcommands and their summaries.
Rule 2. An error that Headwater reports is one line on standard error and exit status 1, never a
        traceback. A wrong command line is exit status 2, Ctrl-C is 130.

The module of a subcommand has a function of the same name with annotations (`headwater.cli.command`). If it has
subcommands itself, it has a `CommandGroup` named ``app``.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
from click.shell_completion import get_completion_class

from headwater.cli.command import CommandGroup, made
from headwater.errors import HeadwaterError
from headwater.version import __version__

INTERRUPTED: Final = 130
"""The exit status after Ctrl-C."""


class Word(NamedTuple):
    """Where a subcommand is defined, and its line in ``headwater --help``."""

    module: str
    attribute: str
    summary: str


TOPICS: Final[dict[str, dict[str, Word]]] = {
    "Run": {
        "serve": Word(
            "headwater.cli.serve", "app", "Serve a store until SIGTERM, SIGINT or SHUTDOWN."
        ),
        "work": Word("headwater.cli.work", "work", "Run the consumers of an app until SIGTERM."),
        "exporter": Word(
            "headwater.cli.exporter", "exporter", "Serve metrics of a store for Prometheus."
        ),
        "demo": Word(
            "headwater.cli.demo", "demo", "Run server, workers and Spark on 336,776 real flights."
        ),
    },
    "Look": {
        "explain": Word(
            "headwater.cli.explain",
            "explain",
            "Explain why consumer groups are stuck, and how to fix it.",
        ),
        "doctor": Word(
            "headwater.cli.doctor", "doctor", "Examine whether a store is fit for workers."
        ),
        "lag": Word(
            "headwater.cli.streams", "lag", "Show how far the groups of a stream are behind."
        ),
        "streams": Word("headwater.cli.streams", "streams_app", "List and trim streams."),
        "groups": Word(
            "headwater.cli.streams", "groups_app", "List consumer groups, set their positions."
        ),
        "consumers": Word(
            "headwater.cli.consumers", "app", "List the consumers of a group, remove unused ones."
        ),
        "tail": Word("headwater.cli.tail", "tail", "Print entries of a stream."),
        "history": Word(
            "headwater.cli.history", "history", "Print what happened to an entry (Headwater only)."
        ),
    },
    "Act": {
        "pending": Word(
            "headwater.cli.pending",
            "app",
            "List pending entries; hand them back, claim, acknowledge or bury them.",
        ),
        "retries": Word(
            "headwater.cli.retries", "app", "List entries that wait for their retry, run them now."
        ),
        "scheduled": Word(
            "headwater.cli.scheduled", "app", "List messages that are published later, cancel them."
        ),
        "dead": Word("headwater.cli.dead", "app", "List, show, replay and drop dead letters."),
        "add": Word("headwater.cli.tail", "add", "Add an entry to a stream."),
    },
    "Files of a store": {
        "backup": Word("headwater.cli.backup", "backup", "Copy a store, also while it is used."),
        "restore": Word(
            "headwater.cli.backup", "restore", "Restore a data directory to a point in time."
        ),
        "check": Word("headwater.cli.check", "check", "Check the files of a store."),
        "repair": Word(
            "headwater.cli.repair", "repair", "Recover a store from a damaged data directory."
        ),
        "store": Word(
            "headwater.cli.journal", "store", "Show what uses the disk in a data directory."
        ),
        "journal": Word("headwater.cli.journal", "app", "List and verify the journal of a store."),
    },
    "Tables": {
        "pipeline": Word("headwater.cli.pipeline", "app", "Turn streams into tables with Spark."),
        "spark": Word(
            "headwater.cli.spark",
            "app",
            "Package Headwater for a cluster's executors; set up Spark's own programs.",
        ),
    },
    "Setup": {
        "acl": Word(
            "headwater.cli.acl", "app", "Print the least rights that each kind of user needs."
        ),
        "info": Word("headwater.cli.info", "info", "Print what is installed and what is compiled."),
    },
}
"""The subcommands, in the order of the help."""

WORDS: Final = {name: word for words in TOPICS.values() for name, word in words.items()}


class LazyGroup(CommandGroup):
    """The subcommands of `WORDS`, each imported when it is run or its help is printed."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return their names."""
        return [*WORDS]

    def get_command(self, ctx: Any, cmd_name: str) -> click.Command | None:
        """Import a subcommand."""
        return load(cmd_name) if cmd_name in WORDS else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a table of them for each topic."""
        for topic, words in TOPICS.items():
            with formatter.section(topic):
                formatter.write_dl([(name, word.summary) for name, word in words.items()])


def load(name: str) -> Any:
    """Import one of `WORDS` and return its command."""
    word = WORDS[name]
    defined = getattr(import_module(word.module), word.attribute)
    if isinstance(defined, CommandGroup):
        defined.name, defined.help = name, word.summary
        return defined
    return defined if isinstance(defined, click.Command) else made(defined, name)


def _print_version(_context: Any, _parameter: Any, wanted: bool) -> None:
    if wanted:
        print(f"headwater {__version__}")
        raise click.exceptions.Exit


def _complete(context: Any, option: Any, wanted: bool) -> None:
    if wanted:
        print((install if option.name == "install_completion" else script)(context.command))
        raise click.exceptions.Exit


def _flag(name: str, callback: Any, text: str) -> click.Option:
    return click.Option(
        [name], is_flag=True, expose_value=False, is_eager=True, callback=callback, help=text
    )


app = LazyGroup(
    name="headwater",
    help="A stream store compatible with Redis Streams, a worker framework that loses no message, and "
    "Spark pipelines that turn streams into tables.",
    epilog="`headwater help COMMAND` describes a command and gives an example.",
    context_settings={"help_option_names": ["-h", "--help"]},
    params=[
        _flag("--version", _print_version, "Print the version and exit."),
        _flag("--install-completion", _complete, "Install completion for the current shell."),
        _flag("--show-completion", _complete, "Print the completion script of the current shell."),
    ],
)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line, and exit the process with its status."""
    if isinstance(sys.stdout, TextIOWrapper):
        # Names are printed as the bytes that they are.
        sys.stdout.reconfigure(errors="surrogateescape")
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    try:
        sys.exit(_run(words))
    except BrokenPipeError:  # `| head` has read enough; what is left is flushed to nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), sys.stdout.fileno())
        sys.exit(1)


def _run(words: list[str]) -> int:
    """Run the command line and return its exit status."""
    try:
        status = app.main(
            words, prog_name="headwater", standalone_mode=False, terminal_width=_width()
        )
        sys.stdout.flush()
    except HeadwaterError as problem:
        _complain(str(problem))
        return 1
    except BrokenPipeError:
        raise
    except OSError as problem:  # the disk that the output goes to is full
        _complain(str(problem))
        return 1
    except click.ClickException as problem:
        problem.show()
        return problem.exit_code
    except (click.Abort, KeyboardInterrupt):  # click raises the first one for Ctrl-C
        progress = sys.modules.get("headwater.cli.progress")
        done = getattr(progress, "last", None)
        print(f"interrupted: {done}" if done else "interrupted", file=sys.stderr)
        return INTERRUPTED
    return status if isinstance(status, int) else 0


def _complain(problem: str) -> None:
    """Print an error. What a server or a client wrote in it does not reach the terminal as it is."""
    from headwater.cli.output import coloured
    from headwater.common.names import escaped

    text = "\n".join(map(escaped, problem.split("\n")))
    print(f"{coloured('headwater:', 'red', sys.stderr)} {text}", file=sys.stderr)


def _width() -> int:
    """Return how wide help is. click would import shutil to find it."""
    try:
        columns = int(os.environ.get("COLUMNS") or os.get_terminal_size().columns)
    except (OSError, ValueError):
        columns = 80
    return max(50, min(columns, 100) - 2)


if __name__ == "__main__":
    main()


# --- completion by shells -------------------------------------------------------------------------


_PLACES: Final = {
    "bash": ".local/share/bash-completion/completions/headwater",
    "fish": ".config/fish/completions/headwater.fish",
    "zsh": ".zfunc/_headwater",
}
"""Where each shell looks for scripts, below the home directory."""


def _shell() -> str:
    name = Path(os.environ.get("SHELL") or "bash").name
    if name not in _PLACES:
        raise HeadwaterError(f"there is no completion for {name}: set SHELL to bash, zsh or fish")
    return name


def script(app: click.Command) -> str:
    """Return the script of the shell that SHELL names. Raises `HeadwaterError` for an unknown shell."""
    kind = get_completion_class(_shell())
    assert kind is not None
    return kind(app, {}, "headwater", "_HEADWATER_COMPLETE").source()


def install(app: click.Command) -> str:
    """Write the script where the shell finds it; return what to tell the user."""
    shell = _shell()
    path = Path.home() / _PLACES[shell]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script(app), encoding="utf-8")
    told = f"wrote {path}; it takes effect in new shells"
    if shell == "zsh":
        return f"{told} if ~/.zshrc has: fpath+=~/.zfunc; autoload -Uz compinit && compinit"
    return told
