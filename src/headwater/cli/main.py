"""``headwater``: finds the subcommand and imports only its module.

Rule 1. ``headwater --help`` imports neither redis nor rich nor pyspark, because this module has a table of
        the subcommands and their summaries.
Rule 2. An error that Headwater reports is printed on standard error without a traceback, and the exit status
        is 1. The exit status is 2 for a wrong command line and 130 after Ctrl-C.

The module ``NAME`` defines the subcommand ``NAME``: as its `app`, a `CommandGroup` or a click command, or as an
annotated function ``NAME`` (`headwater.cli.command`). `_ELSEWHERE` lists subcommands in other modules.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import get_completion_class

from headwater.cli.command import CommandGroup, made
from headwater.errors import HeadwaterError
from headwater.version import __version__

INTERRUPTED: Final = 130
"""The exit status after Ctrl-C."""


TOPICS: Final[dict[str, dict[str, str]]] = {
    "Run": {
        "serve": "Serve a store until SIGTERM, SIGINT or SHUTDOWN.",
        "work": "Run the consumers of an app until SIGTERM.",
        "exporter": "Serve metrics of a store for Prometheus.",
        "demo": "Run a server, workers and Spark on 336,776 real flights.",
    },
    "Look": {
        "explain": "Explain why consumer groups are stuck, and how to fix it.",
        "doctor": "Check that a store is fit for workers.",
        "lag": "Show the lag of the groups of a stream.",
        "replicas": "Show who replicates whom, and how far behind each replica is.",
        "streams": "List and trim streams.",
        "groups": "List consumer groups and set their positions.",
        "consumers": "List the consumers of a group, remove unused ones.",
        "tail": "Print entries of a stream.",
        "history": "Print the history of an entry (Headwater only).",
    },
    "Act": {
        "pending": "List pending entries; hand them back, claim, acknowledge or bury them.",
        "retries": "List entries that wait for a retry, and run them now.",
        "scheduled": "List and cancel scheduled messages.",
        "dead": "List, show, replay and drop dead letters.",
        "add": "Add an entry to a stream.",
    },
    "Files of a store": {
        "backup": "Copy a store, even while it is in use.",
        "restore": "Restore a data directory to a point in time.",
        "check": "Check the files of a store.",
        "repair": "Recover a store from a damaged data directory.",
        "store": "Show the disk space that a data directory uses.",
        "journal": "List and verify the journal of a store.",
    },
    "Tables": {
        "pipeline": "Turn streams into tables with Spark.",
        "spark": "Package Headwater for a cluster's executors; set up Spark's own programs.",
    },
    "Setup": {
        "acl": "Print the minimum rights of each kind of user.",
        "info": "Print installed packages and compiled modules.",
    },
}
"""Topic → its subcommands with their summaries, in the order of the help."""

WORDS: Final = {name: summary for words in TOPICS.values() for name, summary in words.items()}

_ELSEWHERE: Final = {
    "add": "tail",
    "groups": "streams",
    "lag": "streams",
    "restore": "backup",
    "store": "journal",
}
"""Subcommand → the module that defines it, if the module has another name."""


class LazyGroup(CommandGroup):
    """The subcommands of `WORDS`, each imported when it is run or its help is printed."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the subcommands."""
        return [*WORDS]

    def get_command(self, ctx: Any, cmd_name: str) -> click.Command | None:
        """Import and return a subcommand; None for an unknown name."""
        return load(cmd_name) if cmd_name in WORDS else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a table of the subcommands of each topic."""
        for topic, words in TOPICS.items():
            with formatter.section(topic):
                formatter.write_dl([*words.items()])


def load(name: str) -> Any:
    """Import the subcommand ``name`` of `WORDS` and return its click command."""
    module = import_module(f"headwater.cli.{_ELSEWHERE.get(name, name)}")
    whole = name not in _ELSEWHERE and hasattr(module, "app")
    defined = getattr(module, "app" if whole else name)
    if isinstance(defined, CommandGroup):
        defined.name, defined.help = name, WORDS[name]
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
        _flag("--show-completion", _complete, "Print the completion script for the current shell."),
    ],
)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line, and exit the process with its status."""
    if isinstance(sys.stdout, TextIOWrapper):
        # Names are printed as their original bytes, in every locale.
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    try:
        sys.exit(_run(words))
    except BrokenPipeError:  # `| head` has read enough: discard the rest of the output
        _discard_output()
        sys.exit(1)


def _discard_output() -> None:
    """Discard the rest of the output. Otherwise flushing it at the process's end would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), sys.stdout.fileno())


def _run(words: list[str]) -> int:
    """Run the command line and return its exit status."""
    try:
        status = app.main(
            words, prog_name="headwater", standalone_mode=False, terminal_width=_width()
        )
        sys.stdout.flush()
    except HeadwaterError as problem:
        complain(str(problem))
        return 1
    except BrokenPipeError:
        raise
    except OSError as problem:
        if problem.filename is not None:
            complain(str(problem))
            return 1
        # Only an error of the output names no file: commands translate those of connections.
        complain(f"the output cannot be written: {problem}. An action may have been done.")
        with suppress(OSError):  # the output of a test has no descriptor
            _discard_output()
        return 1
    except click.ClickException as problem:
        problem.show()
        return problem.exit_code
    except (click.Abort, KeyboardInterrupt) as stop:  # click raises Abort from Ctrl-C
        progress = getattr(stop.__cause__ or stop, "__notes__", [])
        print(": ".join(["interrupted", *progress[-1:]]), file=sys.stderr)
        return INTERRUPTED
    return status if isinstance(status, int) else 0


def complain(problem: str) -> None:
    """Print an error, with control characters escaped, so that a server's text cannot control the terminal."""
    from headwater.cli.output import coloured
    from headwater.common.names import escaped

    text = "\n".join(map(escaped, problem.split("\n")))
    print(f"{coloured('headwater:', 'red', sys.stderr)} {text}", file=sys.stderr)


def _width() -> int:
    """Return the width of help texts, in columns. click would import shutil to find it."""
    try:
        columns = int(os.environ.get("COLUMNS") or os.get_terminal_size().columns)
    except (OSError, ValueError):
        columns = 80
    return max(50, min(columns, 100) - 2)


# --- completion by shells -------------------------------------------------------------------------


_PLACES: Final = {
    "bash": ".local/share/bash-completion/completions/headwater",
    "fish": ".config/fish/completions/headwater.fish",
    "zsh": ".zfunc/_headwater",
}
"""Shell → the path of its completion script, relative to the home directory."""


def _shell() -> str:
    name = Path(os.environ.get("SHELL") or "bash").name
    if name not in _PLACES:
        raise HeadwaterError(f"there is no completion for {name}: set SHELL to bash, zsh or fish")
    return name


def script(app: click.Command) -> str:
    """Return the completion script for the shell that SHELL names. Raises `HeadwaterError` for an unknown shell."""
    kind = get_completion_class(_shell())
    assert kind is not None
    return kind(app, {}, "headwater", "_HEADWATER_COMPLETE").source()


def install(app: click.Command) -> str:
    """Write the completion script to the place where the shell looks for it. Return the message for the user."""
    shell = _shell()
    path = Path.home() / _PLACES[shell]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script(app), encoding="utf-8")
    told = f"wrote {path}; it takes effect in new shells"
    if shell == "zsh":
        return f"{told} if ~/.zshrc has: fpath+=~/.zfunc; autoload -Uz compinit && compinit"
    return told


if __name__ == "__main__":
    main()
