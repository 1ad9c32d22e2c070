"""Writes three generated reference pages: ``docs/reference/cli.md`` from the command line,
``docs/reference/commands.md`` from the command table, and ``docs/reference/configuration.md`` from the
declarations of the settings; and the diagram of an entry's states in the worker's guide.

``python -m tools.reference`` writes the pages; tests/tidy checks that they are up to date.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from headwater.cli.main import app
from headwater.commands.syntax import shown_syntax
from headwater.commands.table import COMMANDS, Command
from headwater.worker.declare.owned import TRANSITIONS, State
from tools import configuration_page

ROOT = Path(__file__).resolve().parent.parent
CLI_PAGE = ROOT / "docs" / "reference" / "cli.md"
COMMANDS_PAGE = ROOT / "docs" / "reference" / "commands.md"
GUIDE = ROOT / "docs" / "guide" / "worker.md"
STATES = (
    "<!-- Written by `make docs` from TRANSITIONS in src/headwater/worker/declare/owned.py. -->\n"
)
STATES_END = "\n<!-- End of the states. -->\n"
WIDTH = 96

CLI_HEAD = """\
# The command line

Written by `make docs` from the program itself. The exit status is 0 on success, 1 if Headwater reports an
error (one line on standard error), 2 for a wrong command line and 130 after Ctrl-C.
"""

COMMANDS_HEAD = """\
# The commands

Written by `make docs` from the command table, which is also the source of `COMMAND`, `COMMAND DOCS` and the
categories of `ACL`. Words in upper case are typed as shown (in any case), words in lower case are values,
`[…]` is optional, `<a | b>` is a choice, `...` repeats. The arity includes the name; a negative one is a
minimum. *Since* is the version of Redis that introduced the command; **ours** marks commands that only
Headwater has, with the version of Headwater.
"""


def commands(command: Any, name: str, parent: Any = None) -> Iterator[tuple[str, Any]]:
    """Yield ``command`` and all its subcommands, outer ones first, each with its context."""
    context = click.Context(
        command,
        info_name=name,
        parent=parent,
        terminal_width=WIDTH,
        max_content_width=WIDTH,
        **command.context_settings,
    )
    yield context.command_path, context
    if hasattr(command, "list_commands"):
        for word in command.list_commands(context):
            yield from commands(command.get_command(context, word), word, context)


def guide_with_states() -> str:
    """Return the worker's guide with a new diagram of the states of an entry."""
    before, begin, rest = GUIDE.read_text(encoding="utf-8").partition(STATES)
    _old, end, after = rest.partition(STATES_END)
    assert begin, f"{GUIDE} has no place for the states"
    assert end, f"{GUIDE} has no end of the states"
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {State.READ.value}"]
    lines += [f"    {one.before.value} --> {one.after.value}: {one.cause}" for one in TRANSITIONS]
    lines += [f"    {State.ENDED.value} --> [*]", "```"]
    return before + begin + "\n".join(lines) + end + after


def cli_page() -> str:
    """Return the page of the command line."""
    parts = [CLI_HEAD]
    for path, context in commands(app, "headwater"):
        text = "\n".join(line.rstrip() for line in context.get_help().splitlines())
        parts.append(f"## `{path}`\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


def commands_page() -> str:
    """Return the page of the store's commands."""
    groups: dict[str, list[Command]] = {}
    for command in runnable(COMMANDS.values()):
        groups.setdefault(command.group, []).append(command)
    parts = [COMMANDS_HEAD]
    for group, members in groups.items():
        parts.append(f"## {group.capitalize()}\n")
        parts += [entry(command) for command in sorted(members, key=lambda command: command.name)]
    return "\n".join(parts)


def runnable(declared: Iterable[Command]) -> Iterator[Command]:
    """Yield the commands and subcommands that can be run."""
    for command in declared:
        if not command.subcommands or command.name == "command":
            yield command
        yield from command.subcommands.values()


def entry(command: Command) -> str:
    """Return the page's text about one command."""
    name = command.name.replace("|", " ").upper()
    syntax = f"{name} {shown_syntax(command.syntax)}".rstrip()
    since = f"**ours**, since {command.since}" if is_ours(command) else f"since {command.since}"
    categories = " ".join(f"@{category}" for category in command.categories)
    return f"### {name}\n\n`{syntax}`\n\n{command.summary}\n\n{since} · arity {command.arity} · {categories}\n"


def is_ours(command: Command) -> bool:
    """Return whether only Headwater has the command. Before 1.0 its versions begin with 0."""
    return command.since.startswith("0.")


def main() -> None:
    """Write every generated page."""
    CLI_PAGE.parent.mkdir(parents=True, exist_ok=True)
    pages = {
        CLI_PAGE: cli_page(),
        COMMANDS_PAGE: commands_page(),
        configuration_page.PAGE: configuration_page.page(),
        GUIDE: guide_with_states(),
    }
    for path, text in pages.items():
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
